//! The parts of all sources have one handle, one hold and one verdict.

use std::task::Poll;
use std::time::Duration;

use rdma_collective::kv::layout::{Group, HeadOrder, Layout, Shape};
use rdma_collective::kv::{
    BlockVerdict, Blocks, HoldKind, KvError, LinkOptions, OnDrop, Pool, PoolUse, Prefill, Push, Request,
    Sources,
};
use rdma_core::{Deadline, Wire};

use super::common::{block_on, long};
use super::pair::{assert_freed, engine, link};
use super::ranks::{WHOLE, assert_moved, assert_true, links, room};

const PAIRS: [(u32, u32); 3] = [(4, 9), (0, 2), (31, 30)];

fn sources() -> Vec<u32> {
    PAIRS.iter().map(|(from, _)| *from).collect()
}

fn destinations() -> Vec<u32> {
    PAIRS.iter().map(|(_, to)| *to).collect()
}

/// All ranks of prefill, and a pool that they fill together.
fn joined(ranks: u32) -> (Vec<Prefill>, Sources, Pool) {
    let engine = engine(Wire::Local, None);
    let room = room(&engine);
    let (prefills, decodes) = links(&engine, &room, ranks);
    (prefills, Sources::new(decodes).unwrap(), room)
}

fn push(prefill: &Prefill, request: u64) {
    prefill.push(request, &sources(), long()).unwrap().wait().unwrap();
}

#[test]
fn the_blocks_are_held_until_the_last_source_has_ended() {
    let (prefills, sources, room) = joined(2);
    let mut grant = sources.grant(1, &destinations(), long()).unwrap();
    push(&prefills[1], 1);
    assert_eq!(room.held(9), Some(HoldKind::Granted));
    assert!(grant.poll().is_pending());
    let progress = grant.progress();
    assert_eq!(progress.bytes, 3 * room.layout().block_bytes());
    assert_eq!(progress.bytes_arrived, progress.bytes / 2);
    push(&prefills[0], 1);
    let received = grant.wait_until(long()).unwrap().unwrap();
    assert_eq!((received.bytes, room.held(9)), (progress.bytes, None));
    assert_moved(&room, &PAIRS, &received.verdicts);
}

#[test]
fn an_outcome_is_there_once() {
    let (prefills, sources, room) = joined(2);
    let mut grant = sources.grant(1, &destinations(), long()).unwrap();
    prefills.iter().for_each(|prefill| push(prefill, 1));
    let received = block_on(&mut grant).unwrap();
    assert_moved(&room, &PAIRS, &received.verdicts);
    assert!(grant.poll().is_pending());
    let taken = grant.wait().unwrap_err();
    assert!(matches!(*taken.cause, KvError::OutcomeTaken { request } if request == 1.into()), "{taken}");
}

#[test]
fn a_layer_is_there_when_all_sources_have_brought_it() {
    let (prefills, sources_of_room, room) = joined(2);
    let grant = sources_of_room.grant(1, &destinations(), long()).unwrap();
    let pushes: Vec<_> =
        prefills.iter().map(|prefill| prefill.push_layers(1, &sources(), long()).unwrap()).collect();
    for layer in 0..WHOLE.layers {
        pushes[0].layer_ready(layer).unwrap();
        let early = grant.wait_layer(layer, Deadline::after(Duration::from_millis(20))).unwrap_err();
        assert!(matches!(*early.cause, KvError::LayerLate { .. }), "{early}");
        assert!(grant.poll_layer(layer).is_pending());
        pushes[1].layer_ready(layer).unwrap();
        assert_eq!(block_on(grant.layer(layer)).unwrap(), [BlockVerdict::Valid; 3]);
        assert!(matches!(grant.poll_layer(layer), Poll::Ready(Ok(row)) if row.len() == 3));
    }
    assert_moved(&room, &PAIRS, &grant.wait().unwrap().verdicts);
}

#[test]
fn a_rank_that_never_comes_is_named_at_the_deadline_and_the_rest_is_moved_from_it_alone() {
    let (prefills, sources, room) = joined(4);
    let grant = sources.grant(1, &destinations(), Deadline::after(Duration::from_millis(200))).unwrap();
    for rank in [0, 1, 3] {
        push(&prefills[rank], 1);
    }
    let error = grant.wait().unwrap_err();
    let late = sources.links()[2].peer();
    match &*error.cause {
        KvError::OfSource { peer, cause } => {
            assert_eq!(*peer, late, "{error}");
            assert!(
                matches!(**cause, KvError::GrantExpired { request, .. } if request == 1.into()),
                "{error}"
            );
        }
        _ => panic!("{error}"),
    }
    for rank in 0..4 {
        let part = error.verdicts.of_source(rank).unwrap();
        assert_eq!(part.all_valid(), rank != 2, "rank {rank}");
        assert_true(&room, &PAIRS, (rank as u32, 4), part);
    }
    assert_eq!(error.verdicts.count(BlockVerdict::Valid), 0);

    let again = sources.grant_missing(2, &error.verdicts, long()).unwrap();
    push(&prefills[2], 2);
    let received = again.wait().unwrap();
    assert_eq!(received.bytes, 3 * room.layout().block_bytes() / 4);
    assert_moved(&room, &PAIRS, &received.verdicts);
    // Nothing is owed any more, by the verdicts of the second transfer; those of the first are out of date.
    // All sources are asked then, so that each hears that it may let its blocks go.
    let nothing = sources.grant_missing(3, &received.verdicts, long()).unwrap();
    prefills.iter().for_each(|prefill| push(prefill, 3));
    let received = nothing.wait().unwrap();
    assert_eq!((received.bytes, received.verdicts.all_valid()), (0, true));
    let all = sources.grant_missing(4, &error.verdicts, long()).unwrap();
    assert_eq!(all.progress().bytes, 3 * room.layout().block_bytes());
}

#[test]
fn what_is_given_up_on_all_links_frees_its_blocks_and_leaves_the_links() {
    let (prefills, sources, room) = joined(2);
    let grant = sources.grant(1, &destinations(), long()).unwrap();
    push(&prefills[0], 1);
    let verdicts = grant.revoke(long()).unwrap();
    assert!(verdicts.of_source(0).unwrap().all_valid());
    assert_eq!(verdicts.count(BlockVerdict::Valid), 0);
    assert_eq!(room.held(9), None);
    // A future of giving up, of a transfer that no source has begun.
    let revoking = sources.grant(2, &destinations(), long()).unwrap().start_revoke(long());
    assert_eq!(block_on(revoking).unwrap().count(BlockVerdict::Valid), 0);
    let grant = sources.grant_missing(3, &verdicts, long()).unwrap();
    prefills.iter().for_each(|prefill| push(prefill, 3));
    assert_moved(&room, &PAIRS, &grant.wait().unwrap().verdicts);
}

/// All blocks of rank 0 arrive, and its note does not; rank 1 brings nothing.
#[test]
fn a_source_whose_note_is_missing_pushes_again_beside_one_that_owes_blocks() {
    let (prefills, sources_of_room, room) = joined(4);
    let grant =
        sources_of_room.grant(1, &destinations(), Deadline::after(Duration::from_millis(400))).unwrap();
    let promised = prefills[0].push(Request::new(1).note_later(), &sources(), long()).unwrap();
    [2, 3].into_iter().for_each(|rank| push(&prefills[rank], 1));
    let verdicts = grant.wait().unwrap_err().verdicts;
    promised.wait().unwrap_err();
    let valid = [0, 1, 2, 3].map(|rank| verdicts.of_source(rank).unwrap().all_valid());
    assert_eq!(valid, [true, false, true, true]);
    let grant = sources_of_room.grant_missing(2, &verdicts, long()).unwrap();
    let noted = prefills[0].push(Request::new(2).note(b"token 7"), &sources(), long()).unwrap();
    push(&prefills[1], 2);
    let received = grant.wait().unwrap();
    assert_eq!(noted.wait().unwrap().bytes, 0);
    assert_eq!((received.bytes, &received.note[..]), (3 * room.layout().block_bytes() / 4, &b"token 7"[..]));
    assert_moved(&room, &PAIRS, &received.verdicts);
}

#[test]
fn parts_are_pulled_from_all_sources() {
    let (prefills, room_sources, room) = joined(4);
    let pull = room_sources.pull(1, &destinations(), long()).unwrap();
    let offers: Vec<_> =
        prefills.iter().map(|prefill| prefill.offer(1, &sources(), long()).unwrap()).collect();
    let received = pull.wait().unwrap();
    offers.into_iter().for_each(|offer| _ = offer.wait().unwrap());
    assert_moved(&room, &PAIRS, &received.verdicts);
    let nothing = room_sources.pull_missing(2, &received.verdicts, long()).unwrap();
    let offers: Vec<_> =
        prefills.iter().map(|prefill| prefill.offer(2, &sources(), long()).unwrap()).collect();
    offers.into_iter().for_each(|offer| assert_eq!(offer.wait().unwrap().bytes, 0));
    assert!(nothing.wait().unwrap().verdicts.all_valid());
}

#[test]
fn a_layer_that_is_pulled_is_there_when_it_was_read_from_all_sources() {
    let (prefills, room_sources, room) = joined(2);
    let pull = room_sources.pull_layers(1, &destinations(), long()).unwrap();
    let offer = |prefill: &Prefill| prefill.offer(1, &sources(), long()).unwrap();
    let first = offer(&prefills[0]);
    let early = pull.wait_layer(0, Deadline::after(Duration::from_millis(20))).unwrap_err();
    assert!(matches!(*early.cause, KvError::LayerLate { layer: 0, .. }), "{early}");
    let second = offer(&prefills[1]);
    for layer in 0..WHOLE.layers {
        assert_eq!(block_on(pull.layer(layer)).unwrap(), [BlockVerdict::Valid; 3]);
    }
    assert_moved(&room, &PAIRS, &pull.wait().unwrap().verdicts);
    [first, second].into_iter().for_each(|offer| _ = offer.wait().unwrap());
}

#[test]
fn a_handle_that_is_dropped_gives_all_parts_up_or_lets_them_go_on() {
    let (prefills, sources, room) = joined(2);
    drop(sources.grant(3, &destinations(), long()).unwrap());
    for prefill in &prefills {
        // A grant that is dropped before it was sent is never heard of.
        let soon = Deadline::after(Duration::from_secs(1));
        let error = prefill.push(3, &self::sources(), soon).and_then(Push::wait).unwrap_err();
        let is_told = matches!(error, KvError::PeerRevoked { request, .. } if request == 3.into());
        assert!(
            is_told || matches!(error, KvError::DeadlineExceeded { request, .. } if request == 3.into()),
            "{error}"
        );
    }
    // The peers are told before their answers arrive.
    assert_freed(&room, &destinations());
    let given_up = sources.grant(4, &destinations(), long()).unwrap();
    let token = given_up.revoke_token();
    token.clone().revoke(long());
    let error = given_up.wait().unwrap_err();
    assert!(
        matches!(&*error.cause, KvError::OfSource { cause, .. } if matches!(**cause, KvError::Revoked { .. }))
    );
    token.revoke(long());
    drop(sources.grant(1, &destinations(), long()).unwrap().on_drop(OnDrop::Finish));
    prefills.iter().for_each(|prefill| push(prefill, 1));
    assert_freed(&room, &destinations());
    let again = sources.grant(2, &destinations(), long()).unwrap();
    prefills.iter().for_each(|prefill| push(prefill, 2));
    assert_moved(&room, &PAIRS, &again.wait().unwrap().verdicts);
}

#[test]
fn verdicts_on_the_part_of_one_source_say_nothing_about_the_others() {
    let (prefills, sources, room) = joined(2);
    let grant = sources.grant(1, &destinations(), long()).unwrap();
    push(&prefills[1], 1);
    // The wait for a layer has the verdicts on all parts.
    let soon = Deadline::after(Duration::from_millis(20));
    let late = grant.wait_layer(0, soon).unwrap_err().verdicts;
    let verdicts = grant.revoke(long()).unwrap();
    for (request, verdicts) in [(2, &late), (3, &verdicts), (4, verdicts.of_source(0).unwrap())] {
        let of_1 = verdicts.of_source(1).map_or(0, |part| part.count(BlockVerdict::Valid));
        assert!(of_1 == 3 * WHOLE.layers as usize || request == 4);
        let again = sources.grant_missing(request, verdicts, long()).unwrap();
        let owed = again.progress().bytes;
        // Each of these grants changes the blocks, so that older verdicts are out of date.
        let all = 3 * room.layout().block_bytes();
        assert_eq!(owed, if request == 2 { all / 2 } else { all }, "request {request}");
        again.revoke(long()).unwrap();
    }
    // Verdicts on what source 1 has brought: all valid, and source 0 owes everything.
    let grant = sources.grant(5, &destinations(), long()).unwrap();
    push(&prefills[1], 5);
    let verdicts = grant.revoke(long()).unwrap();
    let of_1 = verdicts.of_source(1).unwrap();
    assert!(of_1.all_valid());
    let again = sources.grant_missing(6, of_1, long()).unwrap();
    push(&prefills[0], 6);
    assert_moved(&room, &PAIRS, &again.wait().unwrap().verdicts);
}

#[test]
fn layers_that_are_not_there_and_outcomes_that_were_taken_are_errors() {
    let (prefills, sources, _room) = joined(2);
    let mut grant = sources.grant(1, &destinations(), long()).unwrap();
    prefills.iter().for_each(|prefill| push(prefill, 1));
    let beyond = grant.wait_layer(WHOLE.layers, long()).unwrap_err();
    assert!(beyond.to_string().contains("layer 8 is not one of 8"), "{beyond}");
    block_on(&mut grant).unwrap();
    let taken = |layer: Poll<_>| match layer {
        Poll::Ready(Err(error)) => error,
        other => panic!("{other:?}"),
    };
    let error: rdma_collective::kv::TransferError = taken(grant.poll_layer(0));
    assert!(matches!(*error.cause, KvError::OutcomeTaken { request } if request == 1.into()), "{error}");
    assert!(!error.verdicts.all_valid());
    let revoked = grant.revoke(long()).unwrap_err();
    assert!(matches!(revoked, KvError::OutcomeTaken { request } if request == 1.into()), "{revoked}");
}

/// Layers of the first pipeline stage are there while the second one has not begun.
#[test]
fn a_layer_waits_for_the_sources_alone_that_have_it() {
    let engine = engine(Wire::Local, None);
    let room = room(&engine);
    let links = [0..4, 4..8].map(|layers| {
        let shape = Shape { layers: 4, head_order: HeadOrder::Nhd, ..WHOLE };
        let layout = Layout::of([Group::new(shape).of_layers(layers)]).unwrap();
        let source = Pool::allocate(&engine, &layout, PoolUse::Source).unwrap();
        link((&engine, &source), (&engine, &room), &LinkOptions::default())
    });
    let (prefills, decodes): (Vec<_>, Vec<_>) = links.into_iter().unzip();
    let stages = Sources::new(decodes).unwrap();
    let grant = stages.grant(1, &destinations(), long()).unwrap();
    let pushed = prefills[0].push_layers(1, &sources(), long()).unwrap();
    pushed.layer_ready(0).unwrap();
    assert_eq!(grant.wait_layer(0, long()).unwrap(), [BlockVerdict::Valid; 3]);
    assert!(grant.poll_layer(4).is_pending());
    (1..4).for_each(|layer| pushed.layer_ready(layer).unwrap());
    push(&prefills[1], 1);
    assert_eq!(grant.wait_layer(4, long()).unwrap(), [BlockVerdict::Valid; 3]);
    assert!(grant.wait().unwrap().verdicts.all_valid());
}

/// The second source fails to come, and the transfer is resumed.
#[test]
fn blocks_that_decode_has_come_from_no_source() {
    let (prefills, sources, room) = joined(2);
    let grant = sources.grant(1, &destinations(), long()).unwrap();
    prefills.iter().for_each(|prefill| push(prefill, 1));
    grant.wait().unwrap();
    let prefix = room.share(&[2]).unwrap();
    let error = sources.grant(2, Blocks::new(&destinations()).having(&[3]), long()).unwrap_err();
    assert!(matches!(error, KvError::Plan(_)), "{error}");
    let all = sources.grant(2, Blocks::new(&destinations()).having(&destinations()), long()).unwrap();
    prefills.iter().for_each(|prefill| push(prefill, 2));
    assert_eq!(all.wait().unwrap().bytes, 0);
    let grant = sources.grant(2, Blocks::new(&destinations()).having(&[2]), long()).unwrap();
    assert_eq!([9, 2].map(|block| room.held(block)), [Some(HoldKind::Granted), Some(HoldKind::Shared)]);
    push(&prefills[0], 2);
    let verdicts = grant.revoke(long()).unwrap();
    assert_eq!(
        [0, 1, 2].map(|place| verdicts.get(0, place) == Some(BlockVerdict::Valid)),
        [false, true, false]
    );
    let grant = sources.grant_missing(3, &verdicts, long()).unwrap();
    push(&prefills[1], 3);
    let received = grant.wait().unwrap();
    assert_eq!(received.bytes, room.layout().block_bytes());
    assert_moved(&room, &PAIRS, &received.verdicts);
    assert_eq!([9, 2].map(|block| room.held(block)), [None, Some(HoldKind::Shared)]);
    drop(prefix);
}
