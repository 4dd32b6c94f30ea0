//! Transition tables of pushes and offers: every event in every stage, and the stage that follows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::offer::OfferStage;
use super::{Pushes, Stage, Writing};
use crate::engine::EngineState;
use crate::kv::fence::Fence;
use crate::kv::layout::{Layout, Shape};
use crate::kv::message;
use crate::kv::message::{Done, Reason, Release, Revoke};
use crate::kv::outcome::Sent;
use crate::kv::plan::Route;
use crate::kv::tests::{SHAPE, TOLD, pair};
use crate::kv::{KvError, Prefill, Request};
use crate::link::imm::TRANSFERS_MAX;
use crate::link::{LaneFailure, PeerName};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Cancelled,
    RevokedByPeer,
    Confirmed,
    /// The deadline of the push, or of giving it up, has passed.
    Late,
    LinkLost,
    /// All posted writes are done.
    Drained,
}

use Event::{Cancelled, Confirmed, Drained, Late, LinkLost, RevokedByPeer};

const EVENTS: [Event; 6] = [Cancelled, RevokedByPeer, Confirmed, Late, LinkLost, Drained];

/// A time beyond every deadline.
const MUCH_LATER: Duration = Duration::from_secs(600);

fn somebody() -> PeerName {
    PeerName::Address(([127, 0, 0, 1], 1).into())
}

fn long() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn ended(error: &KvError) -> &'static str {
    match error {
        KvError::Revoked { .. } => "ended: revoked",
        KvError::PeerRevoked { .. } => "ended: revoked by the peer",
        KvError::DeadlineExceeded { .. } | KvError::LeaseExpired { .. } => "ended: late",
        KvError::PeerFailed { .. } => "ended: lost",
        _ => "ended: otherwise",
    }
}

fn of_push(stage: &Stage) -> &'static str {
    match stage {
        Stage::Waiting => "waiting",
        Stage::Writing(Writing { confirmed: None, .. }) => "begun",
        Stage::Writing(_) => "confirmed",
        Stage::Quiescing { of: Writing { confirmed: None, .. }, .. } => "quiescing",
        Stage::Quiescing { .. } => "confirmed, quiescing",
        Stage::Ended(Ok(_)) => "ended: well",
        Stage::Ended(Err(error)) => ended(error),
    }
}

fn push_in(name: &str) -> Stage {
    let now = Instant::now();
    let done = Done { grant: 1, lease: 1, missing: 0, corrupt: 0 };
    let begun = |confirmed| Writing { grant: 1, at: now, all_posted: Some(0), confirmed };
    let quiescing = |confirmed| {
        let (cause, fence) =
            (KvError::PeerRevoked { request: 5.into(), peer: somebody() }, Fence::at(long().instant()));
        Stage::Quiescing { of: begun(confirmed), last: 0, cause, fence }
    };
    match name {
        "waiting" => Stage::Waiting,
        "begun" => Stage::Writing(begun(None)),
        "confirmed" => Stage::Writing(begun(Some(done))),
        "quiescing" => quiescing(None),
        "confirmed, quiescing" => quiescing(Some(done)),
        _ => Stage::Ended(Ok(Sent {
            note: Vec::new(),
            bytes: 0,
            writes: 0,
            corrupt: 0,
            elapsed: Duration::ZERO,
        })),
    }
}

fn happens(pushes: &mut Pushes, core: &mut EngineState, id: u64, event: Event) {
    let now = Instant::now();
    match event {
        Cancelled => pushes.cancel(core, id, Some(long()), now),
        RevokedByPeer => pushes.revoked(core, Revoke { grant: 1, reason: Reason::Revoked }, now).unwrap(),
        Confirmed => pushes.confirmed(Done { grant: 1, lease: 1, missing: 0, corrupt: 0 }).unwrap(),
        Late => {
            pushes.expire(core, now + MUCH_LATER, now + MUCH_LATER);
        }
        LinkLost => pushes.end(core, LaneFailure::Fenced, now),
        Drained => {
            pushes.finish(core, now);
            pushes.finish_stopped(core, now);
        }
    }
}

/// The name of the stage in which an event leaves the only push of an end, which is put into a stage before.
fn after(
    prefill: &Prefill,
    stage: &str,
    event: Event,
    name: impl Fn(&Stage) -> &'static str,
) -> &'static str {
    let shared = prefill.shared();
    shared.engine.lock_with(|core| {
        let mut pushes = shared.lock();
        pushes.grants_seen = 1;
        let state = pushes.pushes.iter_mut().flatten().next().unwrap();
        let id = state.id();
        state.stage = push_in(stage);
        assert_eq!(of_push(&state.stage), stage);
        happens(&mut pushes, core, id, event);
        name(&pushes.pushes.iter().flatten().next().unwrap().stage)
    })
}

#[test]
fn every_stage_of_a_push_and_everything_that_can_happen_there() {
    // The columns are in the order of `EVENTS`.
    let table = [
        ("waiting", ["ended: revoked", "waiting", "waiting", "ended: late", "ended: lost", "waiting"]),
        ("begun", ["quiescing", "quiescing", "confirmed", "quiescing", "ended: lost", "begun"]),
        (
            "confirmed",
            [
                "confirmed, quiescing",
                "confirmed, quiescing",
                "confirmed",
                "confirmed, quiescing",
                "ended: well",
                "ended: well",
            ],
        ),
        (
            "confirmed, quiescing",
            [
                "confirmed, quiescing",
                "confirmed, quiescing",
                "confirmed, quiescing",
                "ended: well",
                "ended: well",
                "ended: well",
            ],
        ),
        (
            "quiescing",
            [
                "quiescing",
                "quiescing",
                "confirmed, quiescing",
                // The lane is fenced, so the link has ended too.
                "ended: revoked by the peer",
                "ended: revoked by the peer",
                "ended: revoked by the peer",
            ],
        ),
        ("ended: well", ["ended: well"; 6]),
    ];
    for (stage, row) in table {
        for (event, expected) in EVENTS.into_iter().zip(row) {
            let (prefill, _decode) = pair();
            let push = prefill.push(5, &[1, 2], long()).unwrap();
            let found = after(&prefill, stage, event, of_push);
            assert_eq!(found, expected, "{stage}, then {event:?}");
            let free = found.starts_with("ended") && stage != "ended: well";
            assert!(
                !free || prefill.shared().lock().pool.held(1).is_none(),
                "{stage}, then {event:?}: its blocks are free"
            );
            drop(push);
        }
    }
}

#[test]
fn every_stage_of_a_push_whose_promised_note_is_not_set() {
    // A confirmation before the note was sent counts for nothing.
    let table = [
        ("waiting", ["ended: revoked", "waiting", "waiting", "ended: late", "ended: lost", "waiting"]),
        ("begun", ["quiescing", "quiescing", "begun", "quiescing, no note", "ended: lost", "begun"]),
    ];
    for (stage, row) in table {
        for (event, expected) in EVENTS.into_iter().zip(row) {
            let (prefill, _decode) = pair();
            let push = prefill.push(Request::new(5).note_later(), &[1, 2], long()).unwrap();
            let found = after(&prefill, stage, event, |stage| match stage {
                Stage::Quiescing { cause: KvError::NoteMissing { .. }, .. } => "quiescing, no note",
                stage => of_push(stage),
            });
            assert_eq!(found, expected, "{stage}, then {event:?}");
            drop(push);
        }
    }
}

/// Outcomes of the announcement of a layer, and of waits for a layer that is not sent and for one that is.
fn of_layers(pushes: &mut Pushes, id: u64) -> [&'static str; 3] {
    let told = |result: &Result<(), KvError>| match result {
        Ok(()) => "well",
        Err(KvError::LayerRepeated { .. }) => "repeated",
        Err(error) => ended(error),
    };
    let sent = [0, 1].map(|layer| pushes.layer_sent(id, layer).as_ref().map_or("pending", told));
    [told(&pushes.layer_ready(id, 0)), sent[0], sent[1]]
}

#[test]
fn every_stage_of_a_push_and_what_its_layers_hear() {
    // Columns: layer 0 is announced; layer 0, which has a write left, is sent; layer 1, which has none, is sent.
    let table = [
        ("waiting", ["well", "pending", "pending"]),
        ("begun", ["well", "pending", "well"]),
        ("confirmed", ["well", "pending", "well"]),
        ("quiescing", ["ended: revoked by the peer", "pending", "well"]),
        ("confirmed, quiescing", ["well", "pending", "well"]),
        ("ended: well", ["well", "well", "well"]),
        ("ended: revoked by the peer", ["ended: revoked by the peer", "ended: revoked by the peer", "well"]),
    ];
    for (stage, row) in table {
        for (by_layer, checksums) in [(true, false), (true, true), (false, false)] {
            let (prefill, _decode) = pair();
            let push = if by_layer {
                prefill.push_layers(5, &[1, 2], long()).unwrap()
            } else {
                prefill.push(5, &[1, 2], long()).unwrap()
            };
            let mut pushes = prefill.shared().lock();
            let state = pushes.pushes.iter_mut().flatten().next().unwrap();
            let id = state.id();
            state.stage = match stage {
                "ended: revoked by the peer" => {
                    Stage::Ended(Err(KvError::PeerRevoked { request: 5.into(), peer: somebody() }))
                }
                _ => push_in(stage),
            };
            if let Some(layers) = state.layers.as_mut().filter(|_| stage != "waiting") {
                layers.begin(&[1, 1], checksums);
            }
            let [mut announced, unsent, mut sent] = row;
            if !by_layer && announced == "well" {
                announced = "repeated";
            }
            // Without its sum, or in a push that does not tell layers apart, the layer is sent with the whole push.
            if checksums || !by_layer {
                sent = unsent;
            }
            let found = of_layers(&mut pushes, id);
            assert_eq!(found, [announced, unsent, sent], "{stage}, by layer {by_layer}, {checksums}");
            if by_layer && announced == "well" {
                assert!(matches!(pushes.layer_ready(id, 0), Err(KvError::LayerRepeated { .. })), "{stage}");
            }
            drop(pushes);
            drop(push);
        }
    }
}

fn of_offer(stage: &OfferStage) -> &'static str {
    match stage {
        OfferStage::Open => "open",
        OfferStage::Recalling { .. } => "recalling",
        OfferStage::Ended(Ok(_)) => "ended: well",
        OfferStage::Ended(Err(error)) => ended(error),
    }
}

fn offer_in(name: &str) -> OfferStage {
    match name {
        "open" => OfferStage::Open,
        "recalling" => {
            let (reason, cause) = (Reason::Revoked, KvError::Revoked { request: 5.into() });
            OfferStage::Recalling { reason, cause, fence: Fence::at(long().instant()), told: true }
        }
        _ => OfferStage::Ended(Ok(Sent {
            note: Vec::new(),
            bytes: 0,
            writes: 0,
            corrupt: 0,
            elapsed: Duration::ZERO,
        })),
    }
}

#[test]
fn every_stage_of_an_offer_and_everything_that_can_happen_there() {
    // Columns: recalled; released undone; released done; late; lost with the link. The peer knows of the offer. The
    // release of an offer that has ended breaks the protocol.
    let table = [
        ("open", ["recalling", "ended: revoked by the peer", "ended: well", "recalling", "ended: lost"]),
        ("recalling", ["recalling", "ended: revoked", "ended: well", "ended: revoked", "ended: revoked"]),
        ("ended: well", ["ended: well"; 5]),
    ];
    for (stage, row) in table {
        for (event, expected) in row.into_iter().enumerate() {
            let (prefill, _decode) = pair();
            let offer = prefill.offer(5, &[1, 2], long()).unwrap();
            let shared = prefill.shared();
            let found = shared.engine.lock_with(|core| {
                let mut pushes = shared.lock();
                let lease = pushes.set_offer(offer_in(stage));
                let now = Instant::now();
                let mut released = |done| {
                    let release = Release { lease, done, reads: 0, corrupt: 0, bytes: 0 };
                    let broken = pushes.released(core, release, now).is_err();
                    assert_eq!(broken, stage == "ended: well");
                };
                match event {
                    0 => pushes.recall(core, lease, Some(long()), now),
                    1 => released(false),
                    2 => released(true),
                    3 => {
                        pushes.expire(core, now + MUCH_LATER, now + MUCH_LATER);
                    }
                    _ => pushes.end(core, LaneFailure::Fenced, now),
                }
                of_offer(pushes.offer_stage())
            });
            assert_eq!(found, expected, "{stage}, then event {event}");
            drop(offer);
        }
    }
}

/// Lets decode say that its pool is a thousand times as large, and grant all of it.
#[test]
fn a_grant_of_more_blocks_than_this_pool_has_is_refused_and_its_list_is_not_kept() {
    let (prefill, decode) = pair();
    let blocks = SHAPE.blocks * 1000;
    let theirs = Layout::new(Shape { blocks, ..SHAPE }).unwrap();
    let route = Route::new(&Layout::new(SHAPE).unwrap(), &theirs).unwrap();
    prefill.shared().lock().link.route = Arc::new(route);
    let list: Vec<u32> = (0..blocks).collect();
    let grant = message::Grant { blocks, time_to_live_ms: 60_000, ..TOLD };
    // Decode tells where its slots are before its first grant.
    decode.shared().engine.drive(Instant::now(), 16).unwrap();
    let mut told = 0;
    while told < list.len() {
        let shared = decode.shared();
        let room = 200;
        let sent = shared.engine.lock_with(|core| {
            shared.lock().link.send(core, message::GRANT, |body| grant.write(body, &list, told, room))
        });
        told += if sent { room } else { 0 };
        shared.engine.drive(Instant::now(), 16).unwrap();
        prefill.shared().engine.drive(Instant::now(), 16).unwrap();
        assert!(prefill.shared().lock().grant_capacity(0) <= SHAPE.blocks as usize, "the list is kept");
    }
    let push = prefill.push(TOLD.request, &[0, 1], long()).unwrap();
    let error = push.wait().unwrap_err();
    let counts = matches!(error, KvError::BlockCounts { source_blocks: 2, granted, .. } if granted == blocks);
    assert!(counts, "{error}");
}

#[test]
fn revocations_beyond_what_can_be_answered_end_the_link() {
    for (unsent, ends) in [(2 * TRANSFERS_MAX, false), (2 * TRANSFERS_MAX + 1, true)] {
        let (prefill, _decode) = pair();
        let shared = prefill.shared();
        let revoked = shared.engine.lock_with(|core| {
            let mut pushes = shared.lock();
            let quiesced = |grant| message::Quiesced { grant, reason: Reason::Revoked, writes: 0 };
            pushes.quiesced.extend((1..=unsent as u64).map(quiesced));
            pushes.grants_seen = 9;
            pushes.revoked(core, Revoke { grant: 9, reason: Reason::Revoked }, Instant::now())
        });
        assert_eq!(revoked.is_err(), ends, "{revoked:?}");
    }
}
