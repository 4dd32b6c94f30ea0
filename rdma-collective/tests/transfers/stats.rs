//! Statistics and events of both ends of a link, for each way in which a transfer ends.

use std::time::Duration;

use crate::common::long;
use crate::pair::{CANARY, Pair, SHAPE, engine, link, pool, source_byte};
use rdma_collective::kv::{LinkEvent, LinkOptions, PoolUse, TransferKind, TransferOutcome};
use rdma_core::fault::{Fault, FaultPlan, Rule};
use rdma_core::{Deadline, Wire};

/// Kind, request and outcome of each transfer that has ended.
fn ended(next: impl FnMut() -> Option<LinkEvent>) -> Vec<(TransferKind, String, TransferOutcome)> {
    let events = std::iter::from_fn(next);
    let ended = events.filter_map(|event| match event {
        LinkEvent::Ended { kind, request, outcome, .. } => Some((kind, request.to_string(), outcome)),
        _ => None,
    });
    ended.collect()
}

/// A link over which blocks go either way.
fn both_ways(faults: [Option<FaultPlan>; 2], options: &LinkOptions) -> Pair {
    let [at_prefill, at_decode] = faults.map(|plan| engine(Wire::Local, plan));
    let source = pool(&at_prefill, SHAPE, PoolUse::SourceToPull, source_byte);
    let destination = pool(&at_decode, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
    let (prefill, decode) = link((&at_prefill, &source), (&at_decode, &destination), options);
    Pair { prefill, decode, source, destination }
}

#[test]
fn transfers_are_counted_by_how_they_end_on_both_sides() {
    let pair = both_ways([None, None], &LinkOptions::default());
    let begun = std::time::Instant::now();
    pair.transfer(1, &[(0, 0), (1, 1)]);
    let push = pair.prefill.push_layers(2, &[2], long()).unwrap();
    let grant = pair.decode.grant(2, &[2], long()).unwrap();
    (0..SHAPE.layers).for_each(|layer| push.layer_ready(layer).unwrap());
    grant.wait().unwrap();
    push.wait().unwrap();
    let offer = pair.prefill.offer(3, &[3], long()).unwrap();
    pair.decode.pull(3, &[3], long()).unwrap().wait().unwrap();
    offer.wait().unwrap();
    pair.decode.grant(4, &[4], long()).unwrap().revoke(long()).unwrap();
    pair.prefill.push(5, &[5], long()).unwrap().revoke(long()).unwrap();
    let soon = Deadline::after(Duration::from_millis(5));
    pair.decode.grant(6, &[6], soon).unwrap().wait().unwrap_err();

    use TransferKind::{Grant, Offer, Pull, Push, Stream};
    use TransferOutcome::{Done, Expired, Revoked};
    let expected = [
        (Push, "1".to_owned(), Done),
        (Stream, "2".to_owned(), Done),
        (Offer, "3".to_owned(), Done),
        (Push, "5".to_owned(), Revoked),
    ];
    assert_eq!(ended(|| pair.prefill.next_event()), expected);
    let expected = [
        (Grant, "1".to_owned(), Done),
        (Grant, "2".to_owned(), Done),
        (Pull, "3".to_owned(), Done),
        (Grant, "4".to_owned(), Revoked),
        (Grant, "6".to_owned(), Expired),
    ];
    assert_eq!(ended(|| pair.decode.next_event()), expected);
    let bytes = 4 * pair.destination.layout().block_bytes();
    for (stats, [begun_there, revoked, expired]) in
        [(pair.prefill.stats(), [4, 1, 0]), (pair.decode.stats(), [5, 1, 1])]
    {
        assert_eq!((stats.bytes, stats.blocks), (bytes, 4 * u64::from(SHAPE.layers)));
        assert_eq!([stats.begun, stats.revoked, stats.expired], [begun_there, revoked, expired]);
        assert_eq!((stats.done, stats.corrupt, stats.failed, stats.events_dropped), (3, 0, 0, 0));
        assert!(stats.requests > 0 && stats.preparing > Duration::ZERO);
        assert!(stats.last_progress.is_some_and(|at| at > begun));
    }
}

#[test]
fn a_peer_that_is_lost_and_a_byte_that_was_flipped_are_told_as_such() {
    let options =
        LinkOptions { checksums: true, write_bytes_max: 64, max_send_wr: 4, ..LinkOptions::default() };
    let plan = FaultPlan::seeded(3);
    let pair = both_ways([None, Some(plan.clone())], &options);
    plan.add(Rule::new(Fault::Corrupt).nth(20));
    let all: Vec<u32> = (0..SHAPE.blocks).collect();
    let push = pair.prefill.push(1, &all, long()).unwrap();
    assert!(!pair.decode.grant(1, &all, long()).unwrap().wait().unwrap().verdicts.all_valid());
    push.wait().unwrap();
    let (stats, told) = (pair.decode.stats(), pair.prefill.stats());
    assert_eq!((stats.corrupt, stats.done, told.corrupt, told.done), (1, 0, 1, 0));
    assert!(told.stalls > 0, "288 writes, 4 at once");
    let push = pair.prefill.push(2, &all, long()).unwrap();
    plan.kill();
    push.wait().unwrap_err();
    assert_eq!(pair.prefill.stats().failed, 1);
    let down =
        std::iter::from_fn(|| pair.prefill.next_event()).filter(|it| matches!(it, LinkEvent::Down { .. }));
    assert_eq!(down.count(), 1);
}
