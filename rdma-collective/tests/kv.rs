//! KV transfers over the software device: every byte against what was sent, and everything that can be refused or lost.

mod common;
mod pair;

use std::thread;
use std::time::Duration;

use common::{WIRES, long};
use pair::{Pair, SHAPE, Setup, source_byte};
use proptest::prelude::*;
use rdma_collective::kv::KvError;
use rdma_collective::kv::layout::{Order, Shape};
use rdma_collective::kv::{BlockVerdict, HoldKind, LinkOptions, OnDrop, RequestId};
use rdma_collective::link::{LaneFailure, PeerName};
use rdma_core::fault::{Fault, FaultPlan, Rule};
use rdma_core::{Deadline, PeerAccess, Wire};

/// Shapes that go together, and distinct blocks in any order.
fn requests() -> impl Strategy<Value = (Shape, Shape, Vec<Vec<(u32, u32)>>)> {
    let order =
        prop_oneof![Just(Order::LayerBlockPart), Just(Order::LayerPartBlock), Just(Order::BlockLayerPart)];
    let shape = (1_u32..4, 4_u32..30, 1_u32..5, order).prop_map(|(layers, blocks, block_tokens, order)| {
        Shape { layers, blocks, block_tokens, order, ..SHAPE }
    });
    (shape, 4_u32..30).prop_flat_map(|(source, blocks)| {
        let destination = Shape { blocks, ..source };
        let ids = |blocks: u32| Just((0..blocks).collect::<Vec<_>>()).prop_shuffle();
        (Just(source), Just(destination), ids(source.blocks), ids(blocks), 1_usize..4).prop_map(
            |(source, destination, sources, destinations, requests)| {
                let pairs: Vec<_> = sources.into_iter().zip(destinations).collect();
                let each = pairs.len().div_ceil(requests + 1).max(1);
                (source, destination, pairs.chunks(each).take(requests).map(<[_]>::to_vec).collect())
            },
        )
    })
}

fn options() -> impl Strategy<Value = LinkOptions> {
    (1_u32..40, 1_u32..40, 64_u32..300, 1_u32..3000, any::<bool>()).prop_map(
        |(max_send_wr, credits, control_bytes_max, write_bytes_max, checksums)| LinkOptions {
            max_send_wr,
            credits,
            control_bytes_max,
            write_bytes_max,
            checksums,
            ..LinkOptions::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_block_arrives_where_it_was_granted_and_no_other_byte_changes(
        (source, destination, requests) in requests(),
        options in options(),
        wire in prop::sample::select(&WIRES),
    ) {
        let pair = Setup { wire, source, destination, options, ..Setup::default() }.connect();
        for (request, pairs) in (0..).zip(&requests) {
            pair.transfer(request, pairs);
        }
        pair.assert_moved(&requests.concat());
    }
}

#[test]
fn requests_of_one_link_are_carried_out_side_by_side() {
    for wire in WIRES {
        let pair = Setup { wire, ..Setup::default() }.connect();
        thread::scope(|scope| {
            for request in 0..4 {
                let pair = &pair;
                scope.spawn(move || {
                    let base = request as u32 * 6;
                    let pairs: Vec<_> = (0..6).map(|at| (base + at, 23 - base - at)).collect();
                    pair.transfer(request, &pairs);
                });
            }
        });
        let all: Vec<_> = (0..24).map(|block| (block, 23 - block)).collect();
        pair.assert_moved(&all);
    }
}

#[test]
fn a_link_says_how_it_reaches_its_peer() {
    let pair = Setup::default().connect();
    assert_eq!(
        (pair.prefill.peer_access(), pair.decode.peer_access()),
        (PeerAccess::Mapped, PeerAccess::Mapped)
    );
    assert!(matches!(pair.prefill.peer(), PeerName::Address(address) if address.ip().is_loopback()));
    for (wire, access) in [(Wire::Tcp, PeerAccess::Stream), (Wire::Mapped, PeerAccess::Mapped)] {
        let pair = Setup { wire, ..Setup::default() }.connect();
        assert_eq!((pair.prefill.peer_access(), pair.decode.peer_access()), (access, access));
    }
}

#[test]
fn lists_of_no_repeated_or_unknown_blocks_are_refused_and_later_work_succeeds() {
    let pair = Setup::default().connect();
    for (blocks, expected) in [
        (&[][..], "no blocks"),
        (&[1, 2, 1], "block 1 is given twice"),
        (&[0, 24], "block 24 is not one of 24"),
        (&[u32::MAX], "is not one of 24"),
    ] {
        let granting = pair.decode.grant(1, blocks, long()).unwrap_err();
        let pushing = pair.prefill.push(1, blocks, long()).unwrap_err();
        for error in [granting, pushing] {
            assert!(matches!(error, KvError::Plan(_)) && error.to_string().contains(expected), "{error}");
        }
    }
    pair.transfer(1, &[(0, 23), (1, 0)]);
    pair.assert_moved(&[(0, 23), (1, 0)]);
}

#[test]
fn blocks_of_two_grants_do_not_overlap_and_a_request_has_one_grant() {
    let pair = Setup::default().connect();
    let first = pair.decode.grant(1, &[3, 4, 5], long()).unwrap();
    let error = pair.decode.grant(2, &[6, 5], long()).unwrap_err();
    assert!(matches!(error, KvError::Held { block: 5, by: HoldKind::Granted }), "{error}");
    let error = pair.decode.grant(1, &[7], long()).unwrap_err();
    assert!(matches!(error, KvError::RequestRepeated { request } if request == 1.into()), "{error}");
    // Nothing is granted to this one yet: it waits.
    let pushed = pair.prefill.push(3, &[1], long()).unwrap();
    let error = pair.prefill.push(3, &[9], long()).unwrap_err();
    assert!(matches!(error, KvError::RequestRepeated { request } if request == 3.into()), "{error}");
    let error = pair.source.write(0, 1, 0, &[1]).unwrap_err();
    assert!(error.to_string().contains("leased"), "{error}");
    let progress = first.progress();
    assert!(
        progress.bytes == 3 * pair.destination.layout().block_bytes()
            && progress.bytes_arrived <= progress.bytes
    );
    let (one, three) =
        (pair.prefill.push(1, &[0, 1, 2], long()).unwrap(), pair.decode.grant(3, &[8], long()));
    thread::scope(|scope| {
        scope.spawn(|| pushed.wait().and(one.wait()).unwrap());
        first.wait().unwrap();
        three.unwrap().wait().unwrap();
    });
    pair.transfer(2, &[(5, 6), (6, 7)]);
    pair.assert_moved(&[(0, 3), (1, 4), (2, 5), (1, 8), (5, 6), (6, 7)]);
}

#[test]
fn other_numbers_of_blocks_are_an_error_on_both_sides_and_later_work_succeeds() {
    let pair = Setup::default().connect();
    thread::scope(|scope| {
        let pushing = scope.spawn(|| pair.prefill.push(7, &[0, 1], long()).unwrap().wait().unwrap_err());
        let error = pair.decode.grant(7, &[3, 4, 5], long()).unwrap().wait().unwrap_err();
        for cause in [&*error.cause, &pushing.join().unwrap()] {
            let fits = matches!(cause, KvError::BlockCounts { request, source_blocks: 2, granted: 3, .. } if *request == RequestId::from(7));
            assert!(fits, "{cause}");
        }
        assert_eq!(error.verdicts.count(BlockVerdict::Missing), 9);
    });
    pair.transfer(7, &[(0, 3), (1, 4)]);
    pair.assert_moved(&[(0, 3), (1, 4)]);
}

#[test]
fn a_push_that_nobody_grants_ends_at_its_deadline_alone() {
    let pair = Setup::default().connect();
    let soon = Deadline::after(Duration::from_millis(100));
    let error = pair.prefill.push(1, &[0], soon).unwrap().wait().unwrap_err();
    assert!(
        matches!(error, KvError::DeadlineExceeded { request, bytes_outstanding: 1.., .. } if request == RequestId::from(1)),
        "{error}"
    );
    assert_eq!(pair.source.held(0), None);
    pair.transfer(2, &[(0, 0)]);
    pair.assert_moved(&[(0, 0)]);
}

#[test]
fn a_peer_that_dies_is_named_long_before_the_deadline_and_every_verdict_is_true() {
    for wire in WIRES {
        for dies_at_decode in [false, true] {
            // Prefill dies in the middle of the transfer; it gets little but acknowledgements of many writes at once.
            let nth = if dies_at_decode { 30 } else { 4 };
            let plan = FaultPlan::seeded(3).with(Rule::new(Fault::Kill).nth(nth));
            let faults = if dies_at_decode { [None, Some(plan)] } else { [Some(plan), None] };
            let options = LinkOptions { write_bytes_max: 128, max_send_wr: 16, ..LinkOptions::default() };
            let pair = Setup { wire, faults, options, ..Setup::default() }.connect();
            let blocks: Vec<u32> = (0..24).collect();
            thread::scope(|scope| {
                let pushing =
                    scope.spawn(|| pair.prefill.push(1, &blocks, long()).unwrap().wait().unwrap_err());
                let granting =
                    scope.spawn(|| pair.decode.grant(1, &blocks, long()).unwrap().wait().unwrap_err());
                let error = pushing.join().unwrap();
                assert!(
                    matches!(error, KvError::PeerFailed { request, .. } if request == 1.into()),
                    "{error}"
                );
                let error = granting.join().unwrap();
                let named = matches!(*error.cause, KvError::PeerFailed { bytes_outstanding: 1.., .. });
                assert!(named, "{error}");
                assert!(!error.verdicts.all_valid());
                let mut bytes = vec![0; pair.destination.layout().layer_block_bytes() as usize];
                for layer in 0..3 {
                    for block in 0..24 {
                        pair.destination.read(layer, block, 0, &mut bytes).unwrap();
                        let whole =
                            (0..).zip(&bytes).all(|(at, byte)| *byte == source_byte(layer, block, at));
                        let valid = error.verdicts.get(layer, block as usize) == Some(BlockVerdict::Valid);
                        assert!(whole || !valid, "block {block} in layer {layer} is not what it was called");
                    }
                }
            });
            assert!(blocks.iter().all(|block| pair.source.held(*block).is_none()));
        }
    }
}

#[test]
fn lost_late_and_reordered_messages_change_nothing() {
    for wire in WIRES {
        let plan = |seed| {
            FaultPlan::seeded(seed)
                .with(Rule::new(Fault::Drop).with_probability(0.02))
                .with(Rule::new(Fault::Reorder).with_probability(0.02))
                .with(Rule::new(Fault::Delay(Duration::from_millis(2))).with_probability(0.02))
        };
        let options = LinkOptions { write_bytes_max: 100, checksums: true, ..LinkOptions::default() };
        let faults = [Some(plan(1)), Some(plan(2))];
        let pair = Setup { wire, options, faults, ..Setup::default() }.connect();
        let pairs: Vec<_> = (0..24).map(|block| (block, (block * 5 + 3) % 24)).collect();
        pair.transfer(1, &pairs);
        pair.assert_moved(&pairs);
    }
}

#[test]
fn a_byte_that_is_flipped_on_its_way_makes_its_block_corrupt_and_no_other() {
    for wire in WIRES {
        // A fault in one of the writes, which come after the messages that begin the transfer.
        let plan = FaultPlan::seeded(5).with(Rule::new(Fault::Corrupt).nth(20));
        let options = LinkOptions { checksums: true, write_bytes_max: 64, ..LinkOptions::default() };
        let pair = Setup { wire, options, faults: [None, Some(plan)], ..Setup::default() }.connect();
        let blocks: Vec<u32> = (0..24).collect();
        let (received, pushed) = thread::scope(|scope| {
            let pushing = scope.spawn(|| pair.prefill.push(1, &blocks, long()).unwrap().wait().unwrap());
            let received = pair.decode.grant(1, &blocks, long()).unwrap().wait().unwrap();
            (received, pushing.join().unwrap())
        });
        let invalid: Vec<_> = received.verdicts.invalid().collect();
        let [(layer, block, BlockVerdict::Corrupt)] = invalid[..] else { panic!("{invalid:?}") };
        assert_eq!(pushed.corrupt, 1);
        let mut bytes = vec![0; pair.destination.layout().layer_block_bytes() as usize];
        pair.destination.read(layer, block, 0, &mut bytes).unwrap();
        let wrong = (0..).zip(&bytes).filter(|(at, byte)| **byte != source_byte(layer, block, *at));
        assert_eq!(wrong.count(), 1);
    }
}

#[test]
fn an_end_that_leaves_is_told_from_one_that_dies() {
    let Pair { prefill, decode, .. } = Setup::default().connect();
    let grant = decode.grant(1, &[0], long()).unwrap();
    drop(prefill);
    let error = grant.wait().unwrap_err();
    assert!(matches!(*error.cause, KvError::PeerFailed { cause: LaneFailure::Closed, .. }), "{error}");
}

#[test]
fn handles_that_are_dropped_to_finish_let_their_transfer_go_on() {
    let pair = Setup::default().connect();
    drop(pair.prefill.push(1, &[0, 1], long()).unwrap().on_drop(OnDrop::Finish));
    let received = pair.decode.grant(1, &[4, 5], long()).unwrap();
    // Both engines are driven by what waits on them: the other request's push drives prefill's.
    thread::scope(|scope| {
        scope.spawn(|| pair.prefill.push(2, &[2], long()).unwrap().wait().unwrap());
        received.wait().unwrap();
        drop(pair.decode.grant(2, &[6], long()).unwrap().on_drop(OnDrop::Finish));
        pair.decode.grant(3, &[7], Deadline::after(Duration::from_millis(300))).unwrap().wait().unwrap_err();
    });
    pair.assert_moved(&[(0, 4), (1, 5), (2, 6)]);
    assert_eq!(pair.source.held(0), None);
}

#[test]
fn a_request_of_more_writes_than_can_be_told_apart_is_refused() {
    let shape = Shape { layers: 64, blocks: 2, block_tokens: 1024, ..SHAPE };
    let options = LinkOptions { write_bytes_max: 3, ..LinkOptions::default() };
    let pair = Setup { source: shape, destination: shape, options, ..Setup::default() }.connect();
    let error = thread::scope(|scope| {
        let granting = scope.spawn(|| pair.decode.grant(1, &[1], long()).unwrap().wait().unwrap_err());
        let error = pair.prefill.push(1, &[0], long()).unwrap().wait().unwrap_err();
        let told = granting.join().unwrap();
        assert!(
            matches!(*told.cause, KvError::GrantRefused { request, .. } if request == 1.into()),
            "{told}"
        );
        error
    });
    assert!(matches!(error, KvError::TooManyWrites { .. }), "{error}");
}
