//! Deadlines that pass at one end alone, because it was not driven or could not be told.

use super::*;
use crate::kv::checksum::DRIVE_BYTES_MAX;
use crate::kv::message::{OFFER, Offer, RECALL, Recall};
use crate::kv::{BlockVerdict, Grant, Push};

/// Drives an end by hand until something is so.
fn drive_until(engine: &Engine, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(20), "it does not become so");
        engine.drive(Instant::now(), 16).unwrap();
    }
}

fn small_writes(credits: u32) -> LinkOptions {
    LinkOptions { write_bytes_max: 16, credits, ..LinkOptions::default() }
}

#[test]
fn a_push_that_is_refused_ends_at_once_though_the_peer_cannot_be_told_yet() {
    let (prefill, decode) = pair_of(Shape { blocks: 40, ..SHAPE }, small_writes(4));
    let blocks: Vec<u32> = (2..40).collect();
    let large = decode.grant(1, &blocks, soon()).unwrap();
    let small = decode.grant(2, &[0], Deadline::after(Duration::from_secs(2))).unwrap();
    let at_prefill = &prefill.shared().engine;
    drive_until(at_prefill, || prefill.shared().lock().has_grant(1));
    // The grant takes all credits.
    let pushed = prefill.push(1, &blocks, soon()).unwrap();
    let mut refused = prefill.push(2, &[0, 1], Deadline::after(Duration::from_millis(50))).unwrap();
    thread::sleep(Duration::from_millis(100));
    let std::task::Poll::Ready(Err(error)) = refused.poll() else { panic!("it is not over") };
    assert!(
        matches!(error, KvError::BlockCounts { request, source_blocks: 2, granted: 1, .. } if request == 2.into()),
        "{error}"
    );
    thread::scope(|scope| {
        scope.spawn(|| pushed.wait().unwrap());
        let error = small.wait().unwrap_err();
        assert!(
            matches!(*error.cause, KvError::BlockCounts { request, .. } if request == 2.into()),
            "{error}"
        );
        assert!(large.wait().unwrap().verdicts.all_valid());
    });
    assert_goes_on(&prefill, &decode, 3);
}

#[test]
fn a_push_of_a_grant_that_was_revoked_is_told_so() {
    let (prefill, decode) = pair();
    let grant = decode.grant(7, &[1, 2], soon()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| grant.revoke(soon()).unwrap());
        drive_until(&prefill.shared().engine, || decode.pool().held(1).is_none());
    });
    let error = prefill.push(7, &[1, 2], soon()).map(drop).unwrap_err();
    assert!(matches!(error, KvError::PeerRevoked { request, .. } if request == 7.into()), "{error}");
    assert_goes_on(&prefill, &decode, 8);
}

/// The grant is made and dropped while another thread has the engine, so that no message of it is sent.
#[test]
fn a_push_whose_grant_was_revoked_before_it_was_sent_is_told_so() {
    let (prefill, decode) = pair();
    let push = prefill.push(7, &[1, 2], soon()).unwrap();
    let engine = decode.shared().engine.clone();
    engine.lock_with(|_| drop(decode.grant(7, &[1, 2], soon()).unwrap()));
    thread::scope(|scope| {
        let waits = scope.spawn(|| push.wait().unwrap_err());
        drive_until(&engine, || waits.is_finished());
        let error = waits.join().unwrap();
        assert!(matches!(error, KvError::PeerRevoked { request, .. } if request == 7.into()), "{error}");
    });
    assert_goes_on(&prefill, &decode, 8);
}

#[test]
fn a_push_that_waits_for_the_rest_of_a_grant_is_told_when_it_is_revoked() {
    for (reason, revoked) in [(Reason::Revoked, true), (Reason::Expired, false)] {
        let (prefill, decode) = pair();
        let push = prefill.push(5, &[1, 2], soon()).unwrap();
        let shared = decode.shared();
        shared.engine.lock_with(|core| {
            let state = shared.lock();
            let revoke = Revoke { grant: 1, reason };
            // The first of two blocks, and no more of it.
            assert!(state.link.send(core, GRANT, |body| TOLD.write(body, &[2, 1], 0, 1)));
            assert!(state.link.send(core, REVOKE, |body| revoke.write(body)));
        });
        let error = push.wait().unwrap_err();
        match error {
            KvError::PeerRevoked { request, .. } if revoked && request == 5.into() => {}
            KvError::GrantExpired { request, .. } if !revoked && request == 5.into() => {}
            error => panic!("{reason:?}: {error}"),
        }
        assert_eq!(prefill.shared().lock().held(1), None);
        // The reason was reported once, and the next push is another one.
        drop(prefill.push(5, &[1, 2], soon()).unwrap());
    }
}

#[test]
fn a_pull_that_waits_for_the_rest_of_an_offer_is_told_when_it_is_recalled() {
    for (reason, revoked) in [(Reason::Revoked, true), (Reason::Expired, false)] {
        let (prefill, decode) = pair();
        let pull = decode.pull(9, &[1, 2], soon()).unwrap();
        let shared = prefill.shared();
        shared.engine.lock_with(|core| {
            let state = shared.lock();
            let offer =
                Offer { lease: 1, request: 9.into(), time_to_live_ms: 9000, tokens: false, note: false };
            assert!(state.link.send(core, OFFER, |body| offer.write(body, &[0, 3], 0, 1)));
            assert!(state.link.send(core, RECALL, |body| Recall { lease: 1, reason }.write(body)));
        });
        let error = pull.wait().unwrap_err();
        match *error.cause {
            KvError::PeerRevoked { request, .. } if revoked && request == 9.into() => {}
            KvError::LeaseExpired { request, .. } if !revoked && request == 9.into() => {}
            _ => panic!("{reason:?}: {error}"),
        }
        assert_eq!(decode.pool().held(1), None);
        drop(decode.pull(9, &[1, 2], soon()).unwrap());
    }
}

#[test]
fn what_had_arrived_before_the_deadline_is_not_late_however_late_it_is_looked_at() {
    let (prefill, decode) = pair_of(Shape { blocks: 40, ..SHAPE }, small_writes(320));
    let blocks: Vec<u32> = (0..40).collect();
    let mut grant = decode.grant(1, &blocks, Deadline::after(Duration::from_millis(200))).unwrap();
    drive_until(&prefill.shared().engine, || prefill.shared().lock().has_grant(0));
    let push = prefill.push(1, &blocks, soon()).unwrap();
    drive_until(&prefill.shared().engine, || push.progress().bytes_arrived == push.progress().bytes);
    thread::sleep(Duration::from_millis(300));
    let received = loop {
        if let std::task::Poll::Ready(outcome) = grant.poll() {
            break outcome.unwrap();
        }
    };
    assert!(received.verdicts.all_valid() && received.writes > 150);
    push.wait().unwrap();
}

/// So large that checking it takes several turns.
const LARGE: Shape =
    Shape { block_tokens: 8192, attention: Attention::Grouped { kv_heads: 1, head_dim: 64 }, ..SHAPE };

/// A link with checksums and a grant of which all has arrived, and of which little was checked.
fn arrived() -> (Prefill, Decode, Grant, Push) {
    let (prefill, decode) = pair_of(LARGE, LinkOptions { checksums: true, ..LinkOptions::default() });
    let grant = decode.grant(5, &[1, 2], soon()).unwrap();
    let push = prefill.push(5, &[0, 3], soon()).unwrap();
    drive_both(&prefill, &decode, || decode.shared().lock().has_arrived(0));
    (prefill, decode, grant, push)
}

fn drive_both(prefill: &Prefill, decode: &Decode, mut is_so: impl FnMut() -> bool) {
    drive_until(&decode.shared().engine, || {
        prefill.shared().engine.drive(Instant::now(), 16).unwrap();
        is_so()
    });
}

#[test]
fn sums_are_checked_a_little_at_each_drive_and_the_engine_does_not_sleep_meanwhile() {
    let (prefill, decode, mut grant, push) = arrived();
    let turns = decode.pool().layout().block_bytes() * 2 / DRIVE_BYTES_MAX;
    assert!(turns >= 2);
    let mut drives = 1;
    while decode.shared().lock().has_arrived(0) {
        // Nobody has looked at the handle, and there is more to do each time.
        assert!(decode.shared().engine.next_deadline().unwrap() <= Instant::now());
        assert!(decode.shared().engine.drive(Instant::now(), 16).unwrap() > 0);
        drives += 1;
    }
    assert!(drives >= turns, "{drives} drives for {turns} turns");
    let received = loop {
        if let std::task::Poll::Ready(outcome) = grant.poll() {
            break outcome.unwrap();
        }
    };
    assert!(received.verdicts.all_valid());
    thread::scope(|scope| scope.spawn(|| assert_eq!(push.wait().unwrap().corrupt, 0)).join().unwrap());
    assert_goes_on(&prefill, &decode, 6);
}

#[test]
fn sums_are_made_a_little_at_each_drive_and_the_engine_is_to_be_driven_at_once() {
    let options = LinkOptions { checksums: true, ..LinkOptions::default() };
    let (prefill, decode) = pair_of(LARGE, options);
    let grant = decode.grant(5, &[1, 2], soon()).unwrap();
    let shared = prefill.shared();
    drive_until(&shared.engine, || shared.lock().has_grant(0));
    let push = prefill.push(5, &[0, 3], soon()).unwrap();
    let mut turns = 1;
    while shared.lock().is_posting() {
        assert!(shared.engine.next_deadline().unwrap() <= Instant::now());
        assert!(shared.engine.drive(Instant::now(), 16).unwrap() > 0);
        turns += 1;
    }
    assert!(turns >= decode.pool().layout().block_bytes() * 2 / DRIVE_BYTES_MAX, "{turns} turns");
    thread::scope(|scope| {
        scope.spawn(|| push.wait().unwrap());
        assert!(grant.wait().unwrap().verdicts.all_valid());
    });
}

#[test]
fn sums_that_are_being_made_when_the_link_ends_keep_no_engine_busy() {
    let options = LinkOptions { checksums: true, ..LinkOptions::default() };
    let (prefill, decode) = pair_of(LARGE, options);
    let _grant = decode.grant(5, &[1, 2], soon()).unwrap();
    let shared = prefill.shared();
    drive_until(&shared.engine, || shared.lock().has_grant(0));
    let mut push = prefill.push(5, &[0, 3], soon()).unwrap();
    assert!(shared.lock().is_posting());
    let link = shared.lock().link.lane;
    shared.engine.lock().lane(link).unwrap().fail(LaneFailure::Closed);
    while shared.engine.drive(Instant::now(), 16).unwrap() > 0 {}
    assert!(matches!(push.poll(), std::task::Poll::Ready(Err(KvError::PeerFailed { .. }))));
    assert!(shared.engine.next_deadline().is_none_or(|due| due > Instant::now()));
}

#[test]
fn what_cannot_be_checked_in_time_is_let_go_and_only_what_was_checked_is_valid() {
    let (prefill, decode, mut grant, push) = arrived();
    let shared = decode.shared();
    drive_until(&shared.engine, || !shared.lock().has_arrived(0) || grant.poll_layer(0).is_ready());
    let late = soon().instant() + Duration::from_secs(600);
    assert!(shared.lock().give_up_unchecked(late));
    let std::task::Poll::Ready(Err(error)) = grant.poll() else { panic!("it is not over") };
    assert!(matches!(*error.cause, KvError::DeadlineExceeded { bytes_outstanding: 0, .. }), "{error}");
    let verdicts = [(0, 0), (0, 1), (1, 1)].map(|(layer, place)| error.verdicts.get(layer, place).unwrap());
    assert_eq!(verdicts, [BlockVerdict::Valid, BlockVerdict::Valid, BlockVerdict::Missing]);
    assert_eq!(decode.pool().held(1), None);
    thread::scope(|scope| scope.spawn(|| push.wait().unwrap()).join().unwrap());
    assert_goes_on(&prefill, &decode, 6);
}

#[test]
fn what_is_revoked_before_it_was_all_checked_is_let_go_at_the_deadline_of_that() {
    let (prefill, decode, grant, push) = arrived();
    let verdicts = grant.revoke(Deadline::after(Duration::ZERO)).unwrap();
    assert_eq!(decode.pool().held(1), None);
    let [valid, missing] = [BlockVerdict::Valid, BlockVerdict::Missing].map(|of| verdicts.count(of));
    assert!(valid + missing == 4 && missing > 0, "{verdicts:?}");
    thread::scope(|scope| scope.spawn(|| push.wait().unwrap()).join().unwrap());
    assert_goes_on(&prefill, &decode, 6);
}

#[test]
fn what_is_revoked_while_prefill_cannot_be_told_that_it_has_arrived_is_valid() {
    let (prefill, decode) = pair_of(SHAPE, LinkOptions { credits: 8, ..LinkOptions::default() });
    let grant = decode.grant(5, &[1, 2], soon()).unwrap();
    drive_until(&prefill.shared().engine, || prefill.shared().lock().has_grant(0));
    let shared = decode.shared();
    shared.engine.lock_with(|core| {
        let state = shared.lock();
        let lane = state.link.lane(core).unwrap();
        while lane.room() > 0 {
            lane.note(Imm::Freed { count: 0 });
        }
    });
    let _pushed = prefill.push(5, &[0, 3], soon()).unwrap();
    drive_until(&shared.engine, || grant.progress().bytes_arrived == grant.progress().bytes);
    let asked = Instant::now();
    let verdicts = grant.revoke(Deadline::after(Duration::from_millis(50))).unwrap();
    assert!(asked.elapsed() < Duration::from_millis(1500), "it ends at the deadline that it was given");
    assert!(verdicts.all_valid(), "{verdicts:?}");
    assert_eq!(decode.pool().held(1), None);
}

#[test]
fn what_is_dropped_is_checked_all_the_same_and_prefill_learns_what_is_corrupt() {
    let (prefill, decode, grant, push) = arrived();
    drop(grant);
    decode.shared().lock().spoil(0);
    drive_until(&decode.shared().engine, || decode.pool().held(1).is_none());
    thread::scope(|scope| scope.spawn(|| assert_eq!(push.wait().unwrap().corrupt, 1)).join().unwrap());
    assert_goes_on(&prefill, &decode, 6);
}

#[test]
fn all_that_has_arrived_is_checked_though_the_peer_is_gone() {
    let (prefill, decode, grant, push) = arrived();
    let shared = decode.shared();
    shared.engine.lock_with(|core| shared.lock().end(core, LaneFailure::Fenced));
    assert!(decode.pool().held(1).is_some(), "it is still to be checked");
    assert!(grant.wait().unwrap().verdicts.all_valid());
    assert!((0..4).all(|block| decode.pool().held(block).is_none()));
    drop((push, prefill));
}

#[test]
fn what_is_dropped_unchecked_after_its_link_has_ended_is_let_go() {
    for dropped_first in [false, true] {
        let (prefill, decode, grant, push) = arrived();
        let end = || {
            let shared = decode.shared();
            shared.engine.lock_with(|core| shared.lock().end(core, LaneFailure::Fenced));
        };
        if dropped_first {
            drop(grant);
            end();
        } else {
            end();
            assert!(decode.pool().held(1).is_some(), "it is still to be checked");
            drop(grant);
        }
        assert_eq!(decode.pool().held(1), None);
        drop((push, prefill));
    }
}

#[test]
fn a_peer_that_is_heard_may_take_longer_than_half_a_second_to_answer() {
    let (prefill, decode) = pair();
    let large = decode.grant(1, &[1, 2], soon()).unwrap();
    let small = decode.grant(2, &[0], Deadline::after(Duration::from_millis(50))).unwrap();
    let at_prefill = &prefill.shared().engine;
    drive_until(at_prefill, || prefill.shared().lock().has_grant(1));
    let (pushed, late) =
        (prefill.push(1, &[1, 2], soon()).unwrap(), prefill.push_layers(2, &[0], soon()).unwrap());
    thread::sleep(Duration::from_millis(60));
    let asked = Instant::now();
    while asked.elapsed() < Duration::from_millis(800) {
        at_prefill.lock_with(|core| prefill.shared().lock().link.lane(core).unwrap().note(Imm::Alive));
        decode.shared().engine.drive(Instant::now(), 64).unwrap();
        assert!(decode.shared().lock().link.ended.is_none(), "it has been heard all the time");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(decode.pool().held(0).is_some(), "it may still be written");
    thread::scope(|scope| {
        scope.spawn(|| (pushed.wait().unwrap(), late.wait().unwrap_err()));
        let error = small.wait().unwrap_err();
        assert!(
            matches!(*error.cause, KvError::DeadlineExceeded { request, .. } if request == 2.into()),
            "{error}"
        );
        assert!(large.wait().unwrap().verdicts.all_valid());
    });
    assert_goes_on(&prefill, &decode, 3);
}

#[test]
fn what_ends_because_it_is_late_is_something_that_happened() {
    let (prefill, decode) = pair();
    let deadline = Deadline::after(Duration::from_secs(2));
    let _push = prefill.push(1, &[0], deadline).unwrap();
    let _pull = decode.pull(2, &[1], deadline).unwrap();
    for engine in [&prefill.shared().engine, &decode.shared().engine] {
        while engine.drive(Instant::now(), 16).unwrap() > 0 {}
        let later = Instant::now() + Duration::from_millis(2500);
        assert!(engine.drive(later, 16).unwrap() > 0, "whoever waits for it is not told");
    }
    assert!(decode.pool().held(1).is_none());
}
