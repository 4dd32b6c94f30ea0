//! Transfers that are given up before they are done, and what becomes of the link. Random ones are in `faulty`.

use std::time::{Duration, Instant};

use crate::common::{WIRES, long};
use crate::pair::Setup;
use rdma_collective::engine::Driver;
use rdma_collective::kv::KvError;
use rdma_collective::kv::{BlockVerdict, LinkOptions};
use rdma_collective::link::LaneFailure;
use rdma_core::Deadline;

#[test]
fn a_grant_that_nobody_has_met_is_revoked_at_once() {
    for wire in WIRES {
        let pair = Setup { wire, ..Setup::default() }.connect();
        for _ in 0..2 {
            let verdicts = pair.decode.grant(1, &[3, 4, 5], long()).unwrap().revoke(long()).unwrap();
            assert_eq!(verdicts.count(BlockVerdict::Missing), 9);
            assert_eq!(pair.destination.held(4), None);
        }
        // Prefill knows that request 1 was taken back, and would say so of a push.
        pair.transfer(2, &[(0, 3), (1, 4)]);
        pair.assert_moved(&[(0, 3), (1, 4)]);
    }
}

#[test]
fn a_peer_that_does_not_answer_a_revocation_is_fenced_at_its_deadline() {
    let pair = Setup { driver: Driver::Caller, ..Setup::default() }.connect();
    let push = pair.prefill.push(1, &[0, 1], long()).unwrap();
    let grant = pair.decode.grant(1, &[3, 4], long()).unwrap();
    let other = pair.decode.grant(2, &[5], long()).unwrap();
    // Nobody drives prefill.
    let started = Instant::now();
    let verdicts = grant.revoke(Deadline::after(Duration::from_millis(100))).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(99), "it had time to answer");
    assert_eq!(verdicts.count(BlockVerdict::Missing), 6);
    assert_eq!(pair.destination.held(3), None);
    let error = other.wait().unwrap_err();
    assert!(matches!(*error.cause, KvError::PeerFailed { cause: LaneFailure::Fenced, .. }), "{error}");
    assert!(matches!(pair.decode.grant(1, &[3], long()), Err(KvError::LinkEnded { .. })));
    push.wait().unwrap_err();
    pair.assert_moved(&[]);
}

#[test]
fn a_peer_that_does_not_answer_leaves_what_had_arrived_and_verdicts_that_are_true() {
    for wire in WIRES {
        for checksums in [false, true] {
            let options = LinkOptions { checksums, ..LinkOptions::default() };
            let pair = Setup { wire, driver: Driver::Caller, options, ..Setup::default() }.connect();
            let grant = pair.decode.grant(1, &[3, 4], long()).unwrap();
            let mut push = pair.prefill.push_layers(1, &[0, 1], long()).unwrap();
            push.layer_ready(0).unwrap();
            while grant.poll_layer(0).is_pending() {
                assert!(push.poll().is_pending());
            }
            // Nobody drives prefill any more.
            let verdicts = grant.revoke(Deadline::after(Duration::from_millis(100))).unwrap();
            pair.assert_true(&[(0, 3), (1, 4)], &verdicts);
            let [valid, missing] = [BlockVerdict::Valid, BlockVerdict::Missing].map(|of| verdicts.count(of));
            assert_eq!((valid, missing), (2, 4), "{wire:?}, checksums {checksums}: {verdicts:?}");
            assert_eq!(pair.destination.held(3), None);
            let ended = pair.decode.grant(2, &[3], long());
            assert!(matches!(ended, Err(KvError::LinkEnded { cause: LaneFailure::Fenced, .. })));
        }
    }
}

#[test]
fn a_push_that_has_met_no_grant_is_cancelled_at_once_and_can_be_begun_anew() {
    let pair = Setup::default().connect();
    for _ in 0..2 {
        pair.prefill.push(1, &[0, 1], long()).unwrap().revoke(long()).unwrap();
        assert_eq!(pair.source.held(0), None);
    }
    pair.transfer(1, &[(0, 3), (1, 4)]);
    pair.assert_moved(&[(0, 3), (1, 4)]);
}

#[test]
fn one_late_request_does_not_end_the_others_of_its_link() {
    let pair = Setup::default().connect();
    let other = pair.decode.grant(2, &[5, 6], long()).unwrap();
    let late = pair.decode.grant(1, &[3], Deadline::after(Duration::from_millis(20))).unwrap();
    let error = late.wait().unwrap_err();
    assert!(matches!(*error.cause, KvError::GrantExpired { request, .. } if request == 1.into()), "{error}");
    let push = pair.prefill.push(2, &[0, 1], long()).unwrap();
    assert!(other.wait().unwrap().verdicts.all_valid());
    push.wait().unwrap();
    pair.assert_moved(&[(0, 5), (1, 6)]);
}

#[test]
fn a_grant_that_nobody_fills_ends_at_its_deadline_and_the_link_goes_on() {
    let pair = Setup::default().connect();
    let soon = Deadline::after(Duration::from_millis(100));
    let error = pair.decode.grant(1, &[0, 1], soon).unwrap().wait().unwrap_err();
    assert!(matches!(*error.cause, KvError::GrantExpired { request, .. } if request == 1.into()), "{error}");
    assert_eq!(error.verdicts.count(BlockVerdict::Missing), 6);
    assert_eq!(pair.destination.held(0), None, "nothing can land in it any more");
    // Prefill may have heard that request 1 has expired, and would say so of a push.
    pair.transfer(2, &[(0, 1), (1, 0)]);
    pair.assert_moved(&[(0, 1), (1, 0)]);
}

#[test]
fn a_grant_whose_peer_does_not_answer_at_its_deadline_ends_the_link() {
    let pair = Setup { driver: Driver::Caller, ..Setup::default() }.connect();
    let soon = Deadline::after(Duration::from_millis(100));
    let started = Instant::now();
    let error = pair.decode.grant(1, &[0, 1], soon).unwrap().wait().unwrap_err();
    assert!(started.elapsed() >= Duration::from_millis(99));
    assert!(matches!(*error.cause, KvError::GrantExpired { request, .. } if request == 1.into()), "{error}");
    assert_eq!(error.verdicts.count(BlockVerdict::Missing), 6);
    assert_eq!(pair.destination.held(0), None, "nothing can land in it any more");
    let error = pair.decode.grant(2, &[0], long()).unwrap_err();
    assert!(matches!(error, KvError::LinkEnded { cause: LaneFailure::Fenced, .. }), "{error}");
    // The other side is told by its device, and names the peer.
    let error = pair.prefill.push(1, &[0, 1], long()).and_then(|push| push.wait()).unwrap_err();
    let told = |error: &KvError| {
        matches!(error, KvError::PeerFailed { .. } | KvError::LinkEnded { .. } | KvError::GrantExpired { .. })
    };
    assert!(told(&error), "{error}");
    pair.assert_moved(&[]);
}
