//! Services that were registered for a lane are advanced by drives with a cause, and by no others.

use std::time::Duration;

use rdma_core::error::PollError;
use rdma_core::{Deadline, Device, SoftOptions};

use super::*;
use crate::engine::{Driver, Engine, EngineOptions};
use crate::link::control::Kind;
use crate::link::imm::Imm;
use crate::link::{LaneFailure, LaneOptions, LinkKind};

/// Counts its advances.
#[derive(Debug, Default)]
struct Counts {
    lane: Option<LaneId>,
    advanced: u32,
    due: Option<Instant>,
    has_more: bool,
}

impl Service for Counts {
    fn advance(&mut self, core: &mut EngineState, _: Instant) -> bool {
        self.advanced += 1;
        self.lane.and_then(|lane| core.lane(lane)).into_iter().for_each(|lane| lane.discard_arrivals());
        std::mem::take(&mut self.has_more)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.due
    }
}

/// A lane with its service, and the lane at the other end.
struct End {
    lane: LaneId,
    peer: LaneId,
    counts: Arc<Mutex<Counts>>,
    id: ServiceId,
}

/// An engine that is driven by hand, and never has to send a heartbeat.
fn engine() -> Engine {
    let (heartbeat, peer_timeout) = (Duration::from_secs(300), Duration::from_secs(600));
    let options =
        EngineOptions { driver: Driver::Caller, heartbeat, peer_timeout, ..EngineOptions::default() };
    let engine = Engine::new(&Device::soft(SoftOptions::default()).open().unwrap(), options).unwrap();
    // Otherwise the peers' silence would mean nothing.
    engine.lock().beat_by_hand();
    engine
}

fn end(engine: &Engine) -> End {
    let options = LaneOptions { epoch: 1, max_send_wr: 16, credits: 6, control_bytes_max: 64 };
    let [lane, peer] = [(); 2].map(|()| engine.open_lane(0, options.clone()).unwrap());
    let blobs = [lane, peer].map(|lane| engine.blob(lane, LinkKind::COLLECTIVE, 0).unwrap());
    let mut core = engine.lock();
    core.connect_lane(lane, &blobs[1], Instant::now()).unwrap();
    core.connect_lane(peer, &blobs[0], Instant::now()).unwrap();
    let counts = Arc::new(Mutex::new(Counts { lane: Some(lane), ..Counts::default() }));
    let id = core.register_for(lane, &counts);
    drop(core);
    End { lane, peer, counts, id }
}

fn drive(engine: &Engine) {
    let _ = engine.drive(Instant::now(), 64);
}

impl End {
    fn advanced(&self) -> u32 {
        self.counts.lock().unwrap().advanced
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.lock().unwrap());
    }
}

#[test]
fn a_service_at_rest_is_not_advanced_by_drives_for_others() {
    let engine = engine();
    let [idle, busy] = [(); 2].map(|()| end(&engine));
    (0..4).for_each(|_| drive(&engine));
    let at_rest = idle.advanced();
    assert!(at_rest > 0, "a new service is advanced, because there may be messages");
    for _ in 0..100 {
        let before = busy.advanced();
        engine.lock_with(|core| core.lane(busy.peer).unwrap().note(Imm::Freed { count: 0 }));
        (0..3).for_each(|_| drive(&engine));
        assert!(busy.advanced() > before, "there was a message for it");
    }
    assert_eq!(idle.advanced(), at_rest);
}

type Cause = (&'static str, fn(&Engine, &End));

fn causes_of_lanes() -> [Cause; 8] {
    [
        ("a message", |engine, end| {
            engine.lock_with(|core| core.lane(end.peer).unwrap().note(Imm::Freed { count: 0 }));
        }),
        ("a request that is done", |engine, end| {
            assert!(engine.lock_with(|core| core.lane(end.lane).unwrap().confirm()));
        }),
        ("CLOSE", |engine, end| {
            let close = |core: &mut EngineState| {
                core.lane(end.peer).unwrap().control(Kind::CLOSE, |_| Ok(())).unwrap()
            };
            assert!(engine.lock_with(close));
        }),
        ("a violation", |engine, end| {
            engine.lock_with(|core| core.lane(end.lane).unwrap().violation("as asked"));
        }),
        ("the peer's death", |engine, end| {
            let died = LaneFailure::Died { pid: 1 };
            engine.lock_with(|core| core.lane(end.lane).unwrap().process_ended(died));
        }),
        ("the peer's silence", |engine, end| {
            let start = Instant::now();
            engine.lock_with(|core| {
                core.lane(end.lane).unwrap().watch(start);
                core.lane(end.peer).unwrap().set_quiet(true);
            });
            // The engine takes a long pause of its own for an absence, so time passes in steps.
            (1..30).for_each(|step| drive_at(engine, start + Duration::from_secs(25 * step)));
            assert!(engine.lock_with(|core| core.lane(end.lane).unwrap().ended()).is_some());
        }),
        ("the device's failure", |engine, _| engine.lock_with(|core| core.fail(0, PollError::Overrun))),
        ("a fence", |engine, end| {
            let deadline = Deadline::after(Duration::from_secs(20));
            engine.lock_with(|core| core.fence_lane(end.lane, deadline)).unwrap();
        }),
    ]
}

fn causes_of_services() -> [Cause; 4] {
    [
        ("its deadline", |engine, end| {
            let due = Instant::now() + Duration::from_millis(5);
            end.change(|counts| counts.due = Some(due));
            engine.attend(end.id);
            let before = end.advanced();
            drive_at(engine, due - Duration::from_millis(1));
            assert_eq!(end.advanced(), before, "it is not due yet");
            for _ in 0..3 {
                // As long as it keeps its deadline: completions may not be known up to there.
                drive_at(engine, due);
            }
            assert_eq!(end.advanced(), before + 3);
            end.change(|counts| counts.due = None);
        }),
        ("a caller that finds the engine free", |engine, end| engine.attend(end.id)),
        ("a caller that does not", |engine, end| {
            let before = end.advanced();
            let core = engine.lock();
            engine.attend(end.id);
            assert!(core.due().is_some_and(|due| due <= Instant::now()));
            drop(core);
            assert_eq!(end.advanced(), before);
        }),
        ("that it has just acted", |engine, end| {
            end.change(|counts| counts.has_more = true);
            engine.rouse_for(end.id);
            let before = end.advanced();
            drive(engine);
            drive(engine);
            assert_eq!(end.advanced(), before + 2);
        }),
    ]
}

#[test]
fn each_cause_advances_a_service_and_then_it_rests() {
    for (name, cause) in causes_of_lanes().into_iter().chain(causes_of_services()) {
        let engine = engine();
        let end = end(&engine);
        let mut last = end.advanced();
        let rest = |last: &mut u32| {
            (0..4).for_each(|_| drive(&engine));
            *last = end.advanced();
            (0..8).for_each(|_| drive(&engine));
            assert_eq!(end.advanced(), *last, "{name}: it does not rest");
        };
        rest(&mut last);
        cause(&engine, &end);
        drive(&engine);
        drive(&engine);
        assert!(end.advanced() > last, "{name}: nobody has advanced it");
        rest(&mut last);
    }
}

fn drive_at(engine: &Engine, now: Instant) {
    engine.drive(now, 64).unwrap();
}

#[test]
fn the_place_of_a_service_that_is_gone_is_used_again() {
    let engine = engine();
    let first = end(&engine);
    first.change(|counts| counts.due = Some(Instant::now()));
    engine.attend(first.id);
    let id = first.id;
    drop(first);
    drive(&engine);
    assert!(engine.lock().due().is_none(), "nobody has a deadline");
    assert_eq!(end(&engine).id, id);
}
