//! Transfers whose handles are dropped, and transfers that are given up by a token: the blocks are free once the peer
//! has stopped, the peer says why, and the link goes on.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use crate::common::{WIRES, block_on, long};
use crate::pair::{CANARY, Pair, SHAPE, assert_freed, engine, link, pool, source_byte};
use rdma_collective::kv::{Grant, KvError, LinkOptions, PoolUse, Push};
use rdma_core::{Deadline, Wire};

const SOURCES: [u32; 2] = [0, 1];
const DESTINATIONS: [u32; 2] = [3, 4];

fn pair(wire: Wire) -> Pair {
    let (at_prefill, at_decode) = (engine(wire, None), engine(wire, None));
    let source = pool(&at_prefill, SHAPE, PoolUse::SourceToPull, source_byte);
    let destination = pool(&at_decode, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
    let (prefill, decode) = link((&at_prefill, &source), (&at_decode, &destination), &LinkOptions::default());
    Pair { prefill, decode, source, destination }
}

fn assert_goes_on(pair: &Pair, request: u64) {
    let grant = pair.decode.grant(request, &DESTINATIONS, long()).unwrap();
    pair.prefill.push(request, &SOURCES, long()).unwrap().wait().unwrap();
    assert!(grant.wait().unwrap().verdicts.all_valid());
    pair.assert_moved(&[(0, 3), (1, 4)]);
}

#[test]
fn transfers_that_have_not_met_free_their_blocks_and_the_peer_is_told_if_it_had_heard_of_them() {
    for wire in WIRES {
        let pair = pair(wire);
        let Pair { prefill, decode, source, destination } = &pair;
        drop(decode.grant(1, &DESTINATIONS, long()).unwrap());
        assert_freed(destination, &DESTINATIONS);
        // A grant that is dropped before it was sent is never heard of.
        let soon = || Deadline::after(Duration::from_secs(1));
        let error = prefill.push(1, &SOURCES, soon()).and_then(Push::wait).unwrap_err();
        let is_told = matches!(error, KvError::PeerRevoked { request, .. } if request == 1.into());
        assert!(
            is_told || matches!(error, KvError::DeadlineExceeded { request, .. } if request == 1.into()),
            "{error}"
        );
        drop(prefill.push(2, &SOURCES, long()).unwrap());
        assert_freed(source, &SOURCES);
        drop(prefill.offer(3, &SOURCES, long()).unwrap());
        assert_freed(source, &SOURCES);
        let error = match decode.pull(3, &DESTINATIONS, soon()) {
            Ok(pull) => (*pull.wait().unwrap_err().cause).clone(),
            Err(error) => error,
        };
        let is_told = matches!(error, KvError::LeaseExpired { request, .. } | KvError::PeerRevoked { request, .. } if request == 3.into());
        assert!(
            is_told || matches!(error, KvError::NotOffered { request, .. } if request == 3.into()),
            "{error}"
        );
        drop(decode.pull(4, &DESTINATIONS, long()).unwrap());
        assert_freed(destination, &DESTINATIONS);
        assert_goes_on(&pair, 5);
    }
}

/// A grant and a push of it that has moved one layer.
fn under_way(pair: &Pair, request: u64) -> (Grant, Push) {
    let grant = pair.decode.grant(request, &DESTINATIONS, long()).unwrap();
    let push = pair.prefill.push_layers(request, &SOURCES, long()).unwrap();
    push.layer_ready(0).unwrap();
    grant.wait_layer(0, long()).unwrap();
    (grant, push)
}

#[test]
fn a_dropped_handle_of_a_transfer_under_way_stops_the_peer_and_leaves_the_link() {
    for wire in WIRES {
        let pair = pair(wire);
        let (grant, push) = under_way(&pair, 1);
        drop(grant);
        let error = push.wait().unwrap_err();
        assert!(matches!(error, KvError::PeerRevoked { request, .. } if request == 1.into()), "{error}");
        assert_freed(&pair.destination, &DESTINATIONS);
        let (grant, push) = under_way(&pair, 2);
        drop(push);
        let error = grant.wait().unwrap_err();
        assert!(
            matches!(*error.cause, KvError::PeerRevoked { request, .. } if request == 2.into()),
            "{error}"
        );
        assert_freed(&pair.source, &SOURCES);
        assert_goes_on(&pair, 3);
    }
}

/// A server drops the future of a request when its client goes, wherever that is.
#[test]
fn a_future_that_is_dropped_at_any_poll_gives_its_transfer_up() {
    let pair = pair(Wire::Local);
    for polls in 0..20 {
        let (grant, push) = under_way(&pair, polls);
        {
            let request = async move { grant.await.map(|received| received.bytes) };
            let mut request = pin!(request);
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..polls {
                assert!(request.as_mut().poll(&mut context).is_pending());
            }
        }
        let error = push.wait().unwrap_err();
        assert!(matches!(error, KvError::PeerRevoked { .. }), "{error}");
        assert_freed(&pair.destination, &DESTINATIONS);
    }
    assert_goes_on(&pair, 100);
}

#[test]
fn a_token_gives_up_what_a_task_awaits_and_does_nothing_afterwards() {
    for wire in WIRES {
        let pair = pair(wire);
        let (mut grant, push) = under_way(&pair, 1);
        let token = grant.revoke_token();
        thread::scope(|scope| {
            let awaits = scope.spawn(|| block_on(&mut grant));
            thread::sleep(Duration::from_millis(10));
            token.clone().revoke(long());
            let error = awaits.join().unwrap().unwrap_err();
            assert!(matches!(*error.cause, KvError::Revoked { request } if request == 1.into()), "{error}");
        });
        token.revoke(long());
        drop((grant, push));
        let (grant, push) = under_way(&pair, 2);
        push.revoke_token().revoke(long());
        let error = push.wait().unwrap_err();
        assert!(matches!(error, KvError::Revoked { request } if request == 2.into()), "{error}");
        let error = grant.wait().unwrap_err();
        assert!(
            matches!(*error.cause, KvError::PeerRevoked { request, .. } if request == 2.into()),
            "{error}"
        );
        token.revoke(long());
        assert_goes_on(&pair, 3);
        drop(pair);
        token.revoke(long());
    }
}
