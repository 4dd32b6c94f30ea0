//! Messages about leases that wait for room are bounded.

use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::*;
use crate::kv::layout::{Layout, Shape};
use crate::kv::tests::{SHAPE, pair};
use crate::link::LaneFailure;
use crate::link::imm::TRANSFERS_MAX;

#[test]
fn offers_beyond_what_can_be_said_of_their_leases_end_the_link() {
    for (untold, ends) in [(2 * TRANSFERS_MAX, false), (2 * TRANSFERS_MAX + 1, true)] {
        let (prefill, decode) = pair();
        let ended = |lease| Release { lease, done: false, reads: 0, corrupt: 0, bytes: 0 };
        decode.shared().lock().pulls.releases.extend((1..=untold as u64).map(ended));
        let offer = Offer { lease: 1, request: 9.into(), time_to_live_ms: 9000, tokens: false, note: false };
        let shared = prefill.shared();
        let told = shared.engine.lock_with(|core| {
            shared.lock().link.send(core, message::OFFER, |body| offer.write(body, &[0, 1], 0, 9))
        });
        assert!(told);
        let started = Instant::now();
        while !decode.shared().lock().pulls.knows(1) && decode.shared().lock().link.ended.is_none() {
            assert!(started.elapsed() < Duration::from_secs(20));
            decode.shared().engine.drive(Instant::now(), 16).unwrap();
        }
        let cause = decode.shared().lock().link.ended.clone();
        assert_eq!(matches!(cause, Some(LaneFailure::Violation(_))), ends, "{cause:?}");
    }
}

/// The time may be looked at after the deadline, and the completions were before it.
#[test]
fn a_pull_that_is_late_holds_its_blocks_while_reads_are_under_way() {
    let (prefill, decode) = pair();
    let long = || Deadline::after(Duration::from_secs(20));
    let _offer = prefill.offer(9, &[0, 1], long()).unwrap();
    let deadline = long();
    let pull = decode.pull(9, &[1, 2], deadline).unwrap();
    let shared = decode.shared();
    let started = Instant::now();
    while shared.lock().pulls.in_flight.is_empty() {
        assert!(started.elapsed() < Duration::from_secs(20));
        prefill.shared().engine.drive(Instant::now(), 16).unwrap();
        shared.engine.drive(Instant::now(), 1).unwrap();
    }
    let (before, after) = (deadline.instant() - Duration::from_secs(1), deadline.instant());
    shared.engine.lock_with(|core| shared.lock().expire(core, before, after));
    assert!(decode.pool().held(1).is_some(), "reads into it are under way");
    shared.engine.lock_with(|core| shared.lock().expire(core, after, after));
    assert!(decode.pool().held(1).is_some(), "reads into it are under way");
    assert!(shared.lock().pulls.reading.is_empty(), "no more are posted");
    let error = pull.wait().unwrap_err();
    assert!(
        matches!(&*error.cause, KvError::DeadlineExceeded { request, .. } if *request == 9.into()),
        "{error}"
    );
    assert!(decode.pool().held(1).is_none());
}

#[test]
fn an_offer_of_more_blocks_than_this_pool_has_is_refused_and_its_list_is_not_kept() {
    let (prefill, decode) = pair();
    let blocks = SHAPE.blocks * 1000;
    let theirs = Layout::new(Shape { blocks, ..SHAPE }).unwrap();
    let route = Route::new(&theirs, decode.pool().layout()).unwrap();
    decode.shared().lock().link.route = Arc::new(route);
    let list: Vec<u32> = (0..blocks).collect();
    let offer = Offer { lease: 1, request: 9.into(), time_to_live_ms: 60_000, tokens: false, note: false };
    let mut told = 0;
    while told < list.len() {
        let shared = prefill.shared();
        let room = 200;
        let sent = shared.engine.lock_with(|core| {
            shared.lock().link.send(core, message::OFFER, |body| offer.write(body, &list, told, room))
        });
        told += if sent { room } else { 0 };
        shared.engine.drive(Instant::now(), 16).unwrap();
        decode.shared().engine.drive(Instant::now(), 16).unwrap();
        let decode = decode.shared().lock();
        let kept = decode.pulls.offers.iter().map(|offer| offer.list.capacity()).max();
        assert!(kept.is_none_or(|kept| kept <= SHAPE.blocks as usize), "the list is kept: {kept:?}");
    }
    let pull = decode.pull(9, &[1, 2], Deadline::after(Duration::from_secs(20))).unwrap();
    let error = pull.wait().unwrap_err();
    let counts = matches!(*error.cause, KvError::BlockCounts { source_blocks, granted: 2, .. } if source_blocks == blocks);
    assert!(counts, "{error}");
}
