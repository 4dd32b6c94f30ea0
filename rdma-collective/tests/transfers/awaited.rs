//! Transfers that nobody waits for with a thread: polled, waited for in turns, awaited, dropped.

use std::future::IntoFuture;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{block_on, long};
use crate::pair::{CANARY, Pair, SHAPE, Setup, engine, link, pool, source_byte};
use rdma_collective::kv::KvError;
use rdma_collective::kv::PlanError;
use rdma_collective::kv::{BlockVerdict, LinkOptions, OnDrop, PoolUse};
use rdma_core::{Deadline, Wire};

fn pair(checksums: bool) -> Pair {
    let options = LinkOptions { checksums, ..LinkOptions::default() };
    let (at_prefill, at_decode) = (engine(Wire::Local, None), engine(Wire::Local, None));
    let source = pool(&at_prefill, SHAPE, PoolUse::SourceToPull, source_byte);
    let destination = pool(&at_decode, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
    let (prefill, decode) = link((&at_prefill, &source), (&at_decode, &destination), &options);
    Pair { prefill, decode, source, destination }
}

#[test]
fn transfers_are_awaited_without_a_runtime_of_anybody() {
    for checksums in [false, true] {
        let pair = pair(checksums);
        block_on(async {
            let push = pair.prefill.push(1, &[0, 1], long()).unwrap();
            let grant = pair.decode.grant(1, &[3, 4], long()).unwrap();
            assert!(grant.await.unwrap().verdicts.all_valid());
            push.await.unwrap();
            let offer = pair.prefill.offer(2, &[2], long()).unwrap();
            let pull = pair.decode.pull(2, &[5], long()).unwrap();
            assert!(pull.await.unwrap().verdicts.all_valid());
            offer.await.unwrap();
        });
        pair.assert_moved(&[(0, 3), (1, 4), (2, 5)]);
    }
}

#[test]
fn layers_are_polled_and_awaited_while_the_others_are_computed() {
    for checksums in [false, true] {
        let pair = pair(checksums);
        let push = pair.prefill.push_layers(1, &[0, 1], long()).unwrap();
        let grant = pair.decode.grant(1, &[3, 4], long()).unwrap();
        assert!(grant.poll_layer(0).is_pending());
        let begin = Instant::now();
        for layer in 0..SHAPE.layers {
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(20));
                    push.layer_ready(layer).unwrap();
                });
                assert_eq!(block_on(grant.layer(layer)).unwrap(), [BlockVerdict::Valid; 2]);
            });
            assert!(matches!(grant.poll_layer(layer), Poll::Ready(Ok(_))));
            assert!(layer + 1 == SHAPE.layers || grant.poll_layer(layer + 1).is_pending());
        }
        assert!(begin.elapsed() < Duration::from_secs(25), "nobody wakes who waits for a layer");
        let none = block_on(grant.layer(SHAPE.layers)).unwrap_err();
        assert!(matches!(&*none.cause, KvError::Plan(PlanError::Layout(_))), "{none}");
        assert!(grant.wait().unwrap().verdicts.all_valid());
        push.wait().unwrap();
        pair.assert_moved(&[(0, 3), (1, 4)]);
    }
}

#[test]
fn whoever_awaits_a_layer_is_woken_when_the_peer_goes() {
    let Pair { prefill, decode, .. } = pair(false);
    let push = prefill.push_layers(1, &[0, 1], long()).unwrap();
    let grant = decode.grant(1, &[3, 4], long()).unwrap();
    let begin = Instant::now();
    let peer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        drop(prefill);
        drop(push);
    });
    let error = block_on(grant.layer(0)).unwrap_err();
    assert!(matches!(&*error.cause, KvError::PeerFailed { .. }), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(25), "nobody wakes who waits for a layer");
    peer.join().unwrap();
}

#[test]
fn a_wait_that_is_over_gives_the_handle_back_and_the_transfer_goes_on() {
    let pair = Setup::default().connect();
    let soon = || Deadline::after(Duration::from_millis(10));
    let mut grant = pair.decode.grant(1, &[3, 4], long()).unwrap();
    assert!(grant.poll().is_pending());
    let grant = grant.wait_until(soon()).unwrap_err();
    let push = pair.prefill.push_layers(1, &[0, 1], long()).unwrap();
    let mut push = push.wait_until(soon()).unwrap_err();
    assert!(push.poll().is_pending());
    (0..SHAPE.layers).for_each(|layer| push.layer_ready(layer).unwrap());
    assert!(grant.wait_until(long()).unwrap().unwrap().verdicts.all_valid());
    push.wait_until(long()).unwrap().unwrap();
    pair.assert_moved(&[(0, 3), (1, 4)]);
}

#[test]
fn futures_that_are_forgotten_or_dropped_to_finish_let_their_transfer_go_on() {
    let pair = Setup::default().connect();
    drop(pair.decode.grant(1, &[3, 4], long()).unwrap().on_drop(OnDrop::Finish).into_future());
    crate::common::forget(pair.decode.grant(2, &[5], long()).unwrap().into_future());
    let both = [pair.prefill.push(1, &[0, 1], long()).unwrap(), pair.prefill.push(2, &[2], long()).unwrap()];
    for push in both {
        block_on(push).unwrap();
    }
    pair.assert_moved(&[(0, 3), (1, 4), (2, 5)]);
}
