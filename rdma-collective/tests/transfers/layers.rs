//! Transfers layer by layer: every byte, every announcement that cannot be. Those whose ends have trouble are in
//! `faulty`.

use std::thread;
use std::time::Duration;

use crate::common::{WIRES, block_on, long};
use crate::pair::{CANARY, Pair, SHAPE, Setup, source_byte};
use proptest::prelude::*;
use rdma_collective::kv::KvError;
use rdma_collective::kv::PlanError;
use rdma_collective::kv::layout::{Order, Shape};
use rdma_collective::kv::{BlockVerdict, LinkOptions};
use rdma_core::Deadline;

const ORDERS: [Order; 3] = [Order::LayerBlockPart, Order::LayerPartBlock, Order::BlockLayerPart];

fn soon() -> Deadline {
    Deadline::after(Duration::from_millis(30))
}

/// Some of the blocks, paired in any order.
fn requests() -> impl Strategy<Value = Vec<(u32, u32)>> {
    let ids = || Just((0..SHAPE.blocks).collect::<Vec<_>>()).prop_shuffle();
    (ids(), ids(), 1_usize..=SHAPE.blocks as usize).prop_map(|(sources, destinations, count)| {
        sources.into_iter().zip(destinations).take(count).collect()
    })
}

/// Asserts that a layer of the destination holds the bytes that were sent, or none of them.
fn assert_layer(pair: &Pair, pairs: &[(u32, u32)], layer: u32, there: bool) {
    let mut bytes = vec![0; pair.destination.layout().layer_block_bytes() as usize];
    for &(source, destination) in pairs {
        pair.destination.read(layer, destination, 0, &mut bytes).unwrap();
        for (at, byte) in (0..).zip(&bytes) {
            let expected = if there { source_byte(layer, source, at) } else { CANARY };
            assert_eq!(*byte, expected, "byte {at} of block {destination} in layer {layer}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_layer_arrives_when_it_is_announced_and_not_before(
        pairs in requests(),
        wire in prop::sample::select(&WIRES),
        order in prop::sample::select(&ORDERS),
        write_bytes_max in 16_u32..2000,
        checksums in any::<bool>(),
    ) {
        let shape = Shape { order, ..SHAPE };
        let options = LinkOptions { write_bytes_max, checksums, ..LinkOptions::default() };
        let pair = Setup { wire, source: shape, destination: shape, options, ..Setup::default() }.connect();
        let (sources, destinations): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
        let push = pair.prefill.push_layers(1, &sources, long()).unwrap();
        let grant = pair.decode.grant(1, &destinations, long()).unwrap();
        for layer in 0..shape.layers {
            assert_layer(&pair, &pairs, layer, false);
            push.layer_ready(layer).unwrap();
            let verdicts = grant.wait_layer(layer, long()).unwrap();
            prop_assert!(verdicts.len() == pairs.len() && verdicts.iter().all(|it| *it == BlockVerdict::Valid));
            assert_layer(&pair, &pairs, layer, true);
        }
        prop_assert!(grant.wait().unwrap().verdicts.all_valid());
        push.wait().unwrap();
        pair.assert_moved(&pairs);
    }
}

#[test]
fn layers_announced_twice() {
    let pair = Setup::default().connect();
    let push = pair.prefill.push_layers(1, &[0, 1], long()).unwrap();
    push.layer_ready(0).unwrap();
    let error = push.layer_ready(0).unwrap_err();
    assert!(matches!(error, KvError::LayerRepeated { request, layer: 0 } if request == 1.into()), "{error}");
    // The push goes on as if the layer had been announced once.
    let grant = pair.decode.grant(1, &[3, 4], long()).unwrap();
    (1..3).for_each(|layer| push.layer_ready(layer).unwrap());
    assert!(matches!(push.layer_ready(1), Err(KvError::LayerRepeated { layer: 1, .. })));
    assert!(grant.wait().unwrap().verdicts.all_valid());
    push.wait().unwrap();
    // A push that has them all from the beginning.
    let push = pair.prefill.push(2, &[2], long()).unwrap();
    assert!(matches!(push.layer_ready(0), Err(KvError::LayerRepeated { layer: 0, .. })));
    assert!(pair.decode.grant(2, &[5], long()).unwrap().wait().unwrap().verdicts.all_valid());
    push.wait().unwrap();
    pair.assert_moved(&[(0, 3), (1, 4), (2, 5)]);
}

#[test]
fn a_layer_that_is_not_there_cannot_be_announced() {
    let pair = Setup::default().connect();
    let push = pair.prefill.push_layers(1, &[0, 1], long()).unwrap();
    let error = push.layer_ready(3).unwrap_err();
    assert!(matches!(error, KvError::Plan(PlanError::Layout(_))), "{error}");
    let grant = pair.decode.grant(1, &[3, 4], long()).unwrap();
    [1, 2, 0].into_iter().for_each(|layer| push.layer_ready(layer).unwrap());
    assert!(grant.wait().unwrap().verdicts.all_valid());
    push.wait().unwrap();
    pair.assert_moved(&[(0, 3), (1, 4)]);
}

/// Announced while it is given up and afterwards, a layer gets the error of the push.
#[test]
fn layers_of_a_push_that_has_ended_get_its_error() {
    let pair = Setup::default().connect();
    let push = pair.prefill.push_layers(1, &[0, 1], long()).unwrap();
    let grant = pair.decode.grant(1, &[3, 4], long()).unwrap();
    push.layer_ready(0).unwrap();
    grant.wait_layer(0, long()).unwrap();
    // Prefill has answered, so the push quiesces or has ended.
    let verdicts = grant.revoke(long()).unwrap();
    for layer in 0..2 {
        let error = push.layer_ready(layer).unwrap_err();
        assert!(matches!(error, KvError::PeerRevoked { request, .. } if request == 1.into()), "{error}");
    }
    assert!(matches!(push.layer_ready(3), Err(KvError::Plan(_))));
    assert!(matches!(push.wait(), Err(KvError::PeerRevoked { request, .. }) if request == 1.into()));

    let mut push = pair.prefill.push_layers(2, &[0, 1], long()).unwrap();
    // The grant wants nothing of layer 0.
    let grant = pair.decode.grant_missing(2, &verdicts, long()).unwrap();
    (1..3).for_each(|layer| push.layer_ready(layer).unwrap());
    assert!(grant.wait().unwrap().verdicts.all_valid());
    while pair.source.held(0).is_some() {
        thread::yield_now();
    }
    push.layer_ready(0).unwrap();
    for layer in 0..3 {
        assert!(
            matches!(push.layer_ready(layer), Err(KvError::LayerRepeated { request, .. }) if request == 2.into())
        );
    }
    block_on(&mut push).unwrap();
    assert!(matches!(push.layer_ready(0), Err(KvError::OutcomeTaken { request }) if request == 2.into()));
    pair.assert_moved(&[(0, 3), (1, 4)]);
}

#[test]
fn a_wait_for_a_layer_that_is_late_ends_and_the_transfer_goes_on() {
    let pair = Setup::default().connect();
    let push = pair.prefill.push_layers(1, &[0, 1], long()).unwrap();
    let grant = pair.decode.grant(1, &[3, 4], long()).unwrap();
    push.layer_ready(0).unwrap();
    grant.wait_layer(0, long()).unwrap();
    let error = grant.wait_layer(1, soon()).unwrap_err();
    assert!(
        matches!(*error.cause, KvError::LayerLate { request, layer: 1 } if request == 1.into()),
        "{error}"
    );
    assert_eq!(error.verdicts.count(BlockVerdict::Missing), 4);
    assert!(matches!(*grant.wait_layer(3, soon()).unwrap_err().cause, KvError::Plan(_)));
    // Another request does not wait for its layers.
    pair.transfer(2, &[(5, 6)]);
    (1..3).for_each(|layer| push.layer_ready(layer).unwrap());
    assert_eq!(grant.wait_layer(2, long()).unwrap(), [BlockVerdict::Valid; 2]);
    assert!(grant.wait().unwrap().verdicts.all_valid());
    push.wait().unwrap();
    pair.assert_moved(&[(0, 3), (1, 4), (5, 6)]);
}

#[test]
fn a_push_on_an_expired_grant_is_refused_on_both_sides_and_nothing_is_written() {
    let pair = Setup::default().connect();
    let error = pair.decode.grant(1, &[3, 4], soon()).unwrap().wait().unwrap_err();
    assert!(matches!(*error.cause, KvError::GrantExpired { request, .. } if request == 1.into()), "{error}");
    let error = pair.prefill.push(1, &[0, 1], long()).and_then(|push| push.wait()).unwrap_err();
    assert!(matches!(error, KvError::GrantExpired { request, .. } if request == 1.into()), "{error}");
    pair.assert_moved(&[]);
    // The next one waits for the next grant.
    pair.transfer(1, &[(0, 3), (1, 4)]);
    pair.assert_moved(&[(0, 3), (1, 4)]);
}

#[test]
fn a_revoked_transfer_is_resumed_over_the_same_link() {
    let pair = Setup::default().connect();
    let push = pair.prefill.push_layers(1, &[0, 1], long()).unwrap();
    let grant = pair.decode.grant(1, &[3, 4], long()).unwrap();
    push.layer_ready(0).unwrap();
    grant.wait_layer(0, long()).unwrap();
    let verdicts = grant.revoke(long()).unwrap();
    assert_eq!(verdicts.count(BlockVerdict::Missing), 4);
    assert!(matches!(push.wait(), Err(KvError::PeerRevoked { request, .. }) if request == 1.into()));
    thread::scope(|scope| {
        scope.spawn(|| pair.prefill.push(1, &[0, 1], long()).unwrap().wait().unwrap());
        let received = pair.decode.grant_missing(1, &verdicts, long()).unwrap().wait().unwrap();
        assert_eq!(received.bytes, 4 * pair.destination.layout().layer_block_bytes());
    });
    pair.assert_moved(&[(0, 3), (1, 4)]);
}
