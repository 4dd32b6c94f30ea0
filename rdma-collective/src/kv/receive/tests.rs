//! Transition table of grants: every event in every stage, and the stage that follows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::Receives;
use super::state::{Announced, Revocation, Stage};
use crate::engine::EngineState;
use crate::kv::KvError;
use crate::kv::fence::Fence;
use crate::kv::machine::Machine;
use crate::kv::message::{Begin, Quiesced, Reason};
use crate::kv::plan::{Plan, PlanOptions, Route};
use crate::kv::tests::pair;
use crate::kv::verdict::{BlockVerdict, Verdicts};
use crate::link::LaneFailure;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Revoked,
    /// The peer posts nothing more, and has posted nothing.
    Quiesced,
    /// The checksums are checked.
    Checked,
    /// The deadline of the grant, of taking it back, or of telling the peer has passed.
    Late,
    LinkLost,
    /// Arrivals are evaluated, and the peer is told.
    Looked,
}

const EVENTS: [Event; 6] =
    [Event::Revoked, Event::Quiesced, Event::Checked, Event::Late, Event::LinkLost, Event::Looked];

fn long() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn of_grant(stage: &Stage) -> &'static str {
    match stage {
        Stage::Filling => "filling",
        Stage::Revoking(Revocation { writes: None, .. }) => "revoking",
        Stage::Revoking(_) => "quiesced",
        Stage::Unchecked(_) => "unchecked",
        Stage::Confirming(..) => "confirming",
        Stage::Ended(Ok(_)) => "ended: well",
        Stage::Ended(Err(error)) => match &*error.cause {
            KvError::Revoked { .. } => "ended: revoked",
            KvError::PeerFailed { .. } => "ended: lost",
            _ => "ended: otherwise",
        },
    }
}

/// The announcement of a transfer that has arrived, whose plan says which bytes are checked.
fn begun(route: &Arc<Route>) -> Announced {
    let begin = Begin {
        grant: 1,
        lease: 1,
        writes: 4,
        write_bytes_max: 4096,
        pack_bytes: 0,
        slots: 0,
        by_layer: false,
        tokens: false,
        note: false,
    };
    let mut begun = Announced::new(begin, 2, Instant::now());
    begun.plan = Some(Plan::new(route, [&[0, 1], &[1, 2]], &PlanOptions::unpacked()).unwrap());
    begun
}

fn grant_in(name: &str) -> Stage {
    let revoking = |writes| {
        let cause = Arc::new(KvError::Revoked { request: 5.into() });
        let fence = Fence::at(long().instant());
        Stage::Revoking(Revocation { writes, ..Revocation::of_reads(cause, fence, 0) })
    };
    let verdicts = || Verdicts::new(2, [1, 2], BlockVerdict::Valid);
    match name {
        "filling" => Stage::Filling,
        "revoking" => revoking(None),
        "quiesced" => revoking(Some(0)),
        "unchecked" => Stage::Unchecked(long().instant()),
        "confirming" => Stage::Confirming(verdicts(), long().instant()),
        _ => Stage::Ended(Ok(verdicts())),
    }
}

fn happens(receives: &mut Receives, core: &mut EngineState, event: Event) {
    let now = Instant::now();
    match event {
        Event::Revoked => receives.revoke(core, 1, Some(long()), now),
        Event::Quiesced => {
            // Said twice of one grant, it breaks the protocol.
            let _ = receives.quiesced(Quiesced { grant: 1, reason: Reason::Revoked, writes: 0 }, now);
        }
        Event::Checked => {
            receives.check(now);
        }
        Event::Late => {
            let later = now + Duration::from_secs(600);
            receives.give_up_unchecked(later);
            receives.expire(core, later, later);
        }
        Event::LinkLost => receives.end(core, LaneFailure::Fenced),
        Event::Looked => {
            receives.complete(now).unwrap();
            receives.confirm(core);
            receives.finish_revoked(core);
        }
    }
}

#[test]
fn every_stage_of_a_grant_and_everything_that_can_happen_there() {
    // The columns are in the order of `EVENTS`; the peer knows of the grant, and nothing has arrived.
    let table = [
        ("filling", ["revoking", "quiesced", "filling", "revoking", "ended: lost", "filling"]),
        ("revoking", ["revoking", "quiesced", "revoking", "ended: revoked", "ended: revoked", "revoking"]),
        (
            "quiesced",
            ["quiesced", "quiesced", "quiesced", "ended: revoked", "ended: revoked", "ended: revoked"],
        ),
        ("unchecked", ["unchecked", "unchecked", "confirming", "confirming", "unchecked", "unchecked"]),
        (
            "confirming",
            ["confirming", "confirming", "confirming", "ended: well", "ended: well", "ended: well"],
        ),
        ("ended: well", ["ended: well"; 6]),
    ];
    for (stage, row) in table {
        for (event, expected) in EVENTS.into_iter().zip(row) {
            let (_prefill, decode) = pair();
            let grant = decode.grant(5, &[1, 2], long()).unwrap();
            let shared = decode.shared();
            let found = shared.engine.lock_with(|core| {
                let mut receives = shared.lock();
                let begun = (stage == "unchecked").then(|| begun(&receives.link.route));
                let state = receives.grants[0].as_mut().unwrap();
                (state.stage, state.sums, state.begin) = (grant_in(stage), vec![0; 4], begun);
                assert_eq!(of_grant(&receives.grants[0].as_ref().unwrap().stage), stage);
                happens(&mut receives, core, event);
                of_grant(&receives.grants[0].as_ref().unwrap().stage)
            });
            assert_eq!(found, expected, "{stage}, then {event:?}");
            let free = found.starts_with("ended") && stage != "ended: well";
            assert!(!free || decode.pool().held(1).is_none(), "{stage}, then {event:?}: its blocks are free");
            drop(grant);
        }
    }
}

#[test]
fn a_transfer_that_is_dropped_unchecked_after_the_links_end_is_recorded_as_revoked() {
    let (_prefill, decode) = pair();
    let grant = decode.grant(5, &[1, 2], long()).unwrap();
    let shared = decode.shared();
    shared.engine.lock_with(|core| {
        let mut receives = shared.lock();
        let begun = begun(&receives.link.route);
        let state = receives.grants[0].as_mut().unwrap();
        (state.stage, state.begin) = (grant_in("unchecked"), Some(begun));
        receives.end(core, LaneFailure::Fenced);
        receives.abandon(1);
        assert!(receives.grants[0].is_none());
    });
    let stats = decode.stats();
    assert_eq!((stats.begun, stats.revoked), (1, 1));
    assert_eq!(decode.pool().held(1), None, "its blocks are free");
    drop(grant);
}
