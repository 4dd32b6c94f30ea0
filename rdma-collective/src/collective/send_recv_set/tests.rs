//! Links, sends of a rank to itself, and the sets that are refused.

use super::*;

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
    let behind: Vec<_> = points(&calls).unwrap().all.iter().map(|point| point.behind).collect();
    assert_eq!(behind, [None, None, None, Some(0), None, Some(2)]);
}

#[test]
fn what_a_rank_sends_to_itself_meets_its_receives_in_order() {
    let own = points(&[receive(1, 5), send(1, 5), send(0, 9), send(1, 6), receive(1, 6)]).unwrap().own;
    let [first, second] =
        [SelfTransfer { from: 1, to: 0, bytes: 20 }, SelfTransfer { from: 3, to: 4, bytes: 24 }];
    assert_eq!(own, [first, second]);
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
    let point = points(&[send(0).unwrap()]).unwrap().all[0];
    assert_eq!(point.cut.chunks(0), 1);
    assert_eq!(point.cut.span(0, 0).len, 0);
}
