//! Deadlines that are moved while their transfers wait, at the end that waits and at the end that is told.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{WIRES, long};
use crate::pair::{CANARY, Pair, SHAPE, Setup, engine, link, pool, source_byte};
use rdma_collective::engine::Driver;
use rdma_collective::kv::{
    Grant, KvError, LinkOptions, Offer, PoolUse, Pull, Push, Request, Revocable, Transfer,
};
use rdma_core::{Deadline, Wire};

const SOURCES: [u32; 2] = [0, 1];
const DESTINATIONS: [u32; 2] = [3, 4];
/// Long enough that extending comes before it on a busy machine.
const SHORT: Duration = Duration::from_secs(2);

fn pair(wire: Wire) -> Pair {
    let (at_prefill, at_decode) = (engine(wire, None), engine(wire, None));
    let source = pool(&at_prefill, SHAPE, PoolUse::SourceToPull, source_byte);
    let destination = pool(&at_decode, SHAPE, PoolUse::Destination, |_, _, _| CANARY);
    let (prefill, decode) = link((&at_prefill, &source), (&at_decode, &destination), &LinkOptions::default());
    Pair { prefill, decode, source, destination }
}

fn short() -> Deadline {
    Deadline::after(SHORT)
}

/// Extends a transfer; an earlier deadline changes nothing.
fn extended<K: Revocable>(transfer: Transfer<K>) -> Transfer<K> {
    transfer.extend(long()).unwrap();
    transfer.extend(Deadline::after(Duration::ZERO)).unwrap();
    transfer
}

/// Four transfers wait beyond their deadlines, and the other ends come then.
#[test]
fn every_transfer_waits_until_the_later_deadline() {
    let pairs = WIRES.map(pair);
    let waiting: Vec<_> = pairs
        .iter()
        .map(|Pair { prefill, decode, .. }| {
            let grant = extended(decode.grant(1, &[0, 1], short()).unwrap());
            let push = extended(prefill.push(2, &SOURCES, short()).unwrap());
            let offer = extended(prefill.offer(3, &SOURCES, short()).unwrap());
            let pull = extended(decode.pull(4, &[3], short()).unwrap());
            (grant, push, offer, pull)
        })
        .collect();
    thread::sleep(SHORT + Duration::from_millis(200));
    pairs.iter().zip(waiting).for_each(|(pair, waiting)| all_are_met(pair, waiting));
}

/// Meets the requests 1 to 4 of transfers that wait, each of which then ends well.
fn all_are_met(Pair { prefill, decode, .. }: &Pair, (grant, push, offer, pull): (Grant, Push, Offer, Pull)) {
    prefill.push(1, &SOURCES, long()).unwrap().wait().unwrap();
    assert!(grant.wait().unwrap().verdicts.all_valid());
    let met = decode.grant(2, &[0, 1], long()).unwrap();
    push.wait().unwrap();
    assert!(met.wait().unwrap().verdicts.all_valid());
    assert!(decode.pull(3, &[0, 1], long()).unwrap().wait().unwrap().verdicts.all_valid());
    offer.wait().unwrap();
    let met = prefill.offer(4, &[2], long()).unwrap();
    assert!(pull.wait().unwrap().verdicts.all_valid());
    met.wait().unwrap();
}

/// Far more than the cap that any test lives to see.
const CAP: Duration = Duration::from_secs(60);

/// A request that is kept alive.
fn kept(id: u64) -> Request {
    Request::new(id).keep_alive(CAP)
}

/// Four transfers of other periods each wait for several of those, and nobody extends them.
#[test]
fn every_transfer_that_is_kept_alive_waits_while_its_peer_lives() {
    let pairs = WIRES.map(pair);
    let after = |part| Deadline::after(SHORT * part / 4);
    let waiting: Vec<_> = pairs
        .iter()
        .map(|Pair { prefill, decode, .. }| {
            let grant = decode.grant(kept(1), &[0, 1], after(4)).unwrap();
            let push = prefill.push(kept(2), &SOURCES, after(5)).unwrap();
            let offer = prefill.offer(kept(3), &SOURCES, after(6)).unwrap();
            let pull = decode.pull(kept(4), &[3], after(3)).unwrap();
            let revoked = decode.grant(kept(5), &[4], after(4)).unwrap();
            (grant, push, offer, pull, revoked)
        })
        .collect();
    thread::sleep(SHORT * 3);
    for (pair, (grant, push, offer, pull, revoked)) in pairs.iter().zip(waiting) {
        revoked.revoke(long()).unwrap();
        assert_eq!(pair.destination.held(4), None);
        all_are_met(pair, (grant, push, offer, pull));
    }
}

#[test]
fn a_silent_peer_keeps_nothing_alive() {
    // Nobody drives prefill.
    let pair = Setup { driver: Driver::Caller, ..Setup::default() }.connect();
    let begun = Instant::now();
    let grant = pair.decode.grant(kept(1), &[3], short()).unwrap();
    let error = grant.wait().unwrap_err();
    assert!(matches!(*error.cause, KvError::GrantExpired { .. }), "{error}");
    assert!((SHORT..CAP / 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert_eq!(pair.destination.held(3), None);
}

#[test]
fn a_transfer_that_has_ended_or_is_given_up_cannot_be_extended() {
    let Pair { prefill, decode, .. } = &pair(Wire::Local);
    let (mut grant, push) =
        (decode.grant(1, &DESTINATIONS, long()).unwrap(), prefill.push(1, &SOURCES, long()).unwrap());
    while grant.progress().bytes_arrived < grant.progress().bytes {
        thread::yield_now();
    }
    let ended = |result: Result<(), KvError>| match result {
        Ok(()) => false,
        Err(KvError::AlreadyEnded { request }) if request == 1.into() => true,
        Err(error) => panic!("{error}"),
    };
    // The last message may be under way, so each ends a moment later.
    while !ended(grant.extend(long())) || !ended(push.extend(long())) {
        thread::yield_now();
    }
    assert!(grant.poll().is_ready());
    let taken = grant.extend(long()).unwrap_err();
    assert!(matches!(taken, KvError::OutcomeTaken { request } if request == 1.into()), "{taken}");
    push.wait().unwrap();

    let grant = decode.grant(2, &DESTINATIONS, long()).unwrap();
    grant.revoke_token().revoke(long());
    let revoked = loop {
        match grant.extend(long()) {
            Ok(()) => thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert!(matches!(revoked, KvError::Revoked { request } if request == 2.into()), "{revoked}");
    let offer = prefill.offer(3, &SOURCES, Deadline::after(Duration::ZERO)).unwrap();
    let expired = loop {
        match offer.extend(Deadline::after(Duration::ZERO)) {
            Ok(()) => thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert!(matches!(expired, KvError::LeaseExpired { .. } | KvError::DeadlineExceeded { .. }), "{expired}");
}

#[test]
fn deadlines_move_often_while_transfers_run() {
    let pair = pair(Wire::Tcp);
    let done = AtomicBool::new(false);
    let grant = pair.decode.grant(1, &DESTINATIONS, long()).unwrap();
    let push = pair.prefill.push_layers(1, &SOURCES, long()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = (grant.extend(long()), push.extend(long()));
            }
        });
        for layer in 0..SHAPE.layers {
            push.layer_ready(layer).unwrap();
            grant.wait_layer(layer, long()).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(grant.wait().unwrap().verdicts.all_valid());
    push.wait().unwrap();
    pair.assert_moved(&[(0, 3), (1, 4)]);
}
