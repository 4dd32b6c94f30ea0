//! Links, sends of a rank to itself, and the sets that are refused.

use super::*;
use crate::collective::schedule::Step;

const STAGING: Staging = Staging { slots: 4, slot_bytes: 64, chunk_bytes_min: 16 };

fn send(to: u32, count: usize) -> Call {
    Collective::Send.at(to).of(count, DataType::F32)
}

fn receive(from: u32, count: usize) -> Call {
    Collective::Receive.at(from).of(count, DataType::F32)
}

fn points(calls: &[Call]) -> Result<SendRecvSet, CollectiveError> {
    SendRecvSet::new(calls, RankOf { rank: 1, size: 4 }, &STAGING)
}

#[test]
fn each_follows_the_last_one_the_same_way_over_its_link() {
    let calls = [send(0, 1), send(2, 1), receive(0, 1), send(0, 2), receive(2, 1), receive(0, 3)];
    let set = points(&calls).unwrap();
    let buffers = |points: &Vec<Point>| points.iter().map(|point| point.buffer).collect::<Vec<_>>();
    let strands = set.strands.iter().map(|(of, points)| (*of, buffers(points)));
    let of = [Direction::Send, Direction::Receive].map(|direction| [0, 2].map(|peer| (direction, peer)));
    let expected = of.into_iter().flatten().zip([vec![0, 3], vec![1], vec![2, 5], vec![4]]);
    assert!(strands.eq(expected), "sends come first");
    assert_eq!(set.peer(), Some(0));
}

#[test]
fn what_a_rank_sends_to_itself_meets_its_receives_in_order() {
    let set = points(&[receive(1, 5), send(1, 5), send(0, 9), send(1, 6), receive(1, 6)]).unwrap();
    assert_eq!((&set.own[..], set.peer()), (&[[1, 0], [3, 4]][..], Some(0)));
    let copies = &set.strands[&(Direction::Send, 1)];
    assert_eq!([copies[0].transfer, copies[1].transfer], [20, 24].map(|bytes| Transfer::Copy { bytes }));
    assert_eq!(points(&[receive(1, 5), send(1, 5)]).unwrap().peer(), None, "no link is needed");
    for alone in [&[send(1, 5)][..], &[receive(1, 5)], &[send(1, 5), receive(1, 5), send(1, 5)]] {
        assert!(matches!(points(alone), Err(CollectiveError::ToItself { rank: 1 })));
    }
    let other_type = Call { data_type: DataType::I32, ..receive(1, 5) };
    for unlike in [receive(1, 4), other_type] {
        let error = points(&[send(1, 5), unlike]).unwrap_err();
        let CollectiveError::Mismatch { rank: 1, peer: 1, ours, theirs } = error else { panic!("{error}") };
        assert_eq!([ours.collective, theirs.collective], ["receive", "send"]);
        assert!(ours.count == 4 || ours.of.starts_with("int32"));
    }
}

#[test]
fn no_rank_and_too_many_are_refused() {
    for call in [send(4, 1), receive(4, 1), send(u32::MAX, 0)] {
        let error = points(&[send(0, 1), call]).unwrap_err();
        assert!(matches!(error, CollectiveError::Schedule(ScheduleError::RankOutOfRange { ranks: 4, .. })));
    }
    assert!(points(&[send(0, 1); TRANSFERS_MAX]).is_ok());
    let error = points(&[send(0, 1); TRANSFERS_MAX + 1]).unwrap_err();
    assert!(matches!(error, CollectiveError::GroupTooLong { max: TRANSFERS_MAX }));
}

#[test]
fn bytes_are_whole_elements_and_none_is_a_message() {
    let send = |bytes| Call::point(Collective::Send.at(0), DataType::F32, bytes);
    assert_eq!(send(12).unwrap().count, 3);
    assert!(matches!(send(13), Err(ReduceError::PartialElement { bytes: 13, .. })));
    let set = points(&[send(0).unwrap()]).unwrap();
    let steps = set.strands[&(Direction::Send, 0)][0].steps();
    let puts: Vec<_> = steps.filter(|step| matches!(step, Step::Put { .. })).collect();
    assert!(matches!(puts[..], [Step::Put { to: 0, source, .. }] if source.is_empty()));
}

#[test]
fn a_buffer_that_is_sent_and_received_is_sent_from_copies_and_overwritten_afterwards() {
    let of = RankOf { rank: 1, size: 4 };
    let set = SendRecvSet::in_place([send(2, 3), receive(0, 3)], of, &STAGING).unwrap();
    let transfers: Vec<_> = set.strands.values().flatten().map(|point| point.transfer).collect();
    let receive = Transfer::Receive { from: 0, bytes: 12, after: Some(2) };
    assert_eq!(transfers, [Transfer::Send { to: 2, bytes: 12, copied: true }, receive]);
}
