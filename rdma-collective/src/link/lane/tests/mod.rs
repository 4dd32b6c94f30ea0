//! Two lanes connected in this process, and a peer that does not keep to what was agreed.

mod alive;

use std::time::{Duration, Instant};

use rdma_core::fault::FaultPlan;
use rdma_core::{
    AckTimeout, Device, RemoteKey, RemoteMemory, RetryOptions, Segment, SoftOptions, Wire, Work,
};

use super::*;
use crate::engine::{Driver, Engine, EngineOptions, LaneId};
use crate::link::control::{ENVELOPE_BYTES, Kind, encode};
use crate::link::{Blob, LinkKind};
use crate::liveness::Process;

const OPTIONS: LaneOptions = LaneOptions { epoch: 3, max_send_wr: 16, credits: 6, control_bytes_max: 64 };
const NOWHERE: RemoteMemory = RemoteMemory { addr: 0, len: 0, rkey: RemoteKey(0) };

/// An engine with one lane.
struct End {
    engine: Engine,
    lane: LaneId,
}

impl End {
    fn with<T>(&self, with: impl FnOnce(&mut Lane) -> T) -> T {
        self.engine.lock_with(|core| with(core.lane(self.lane).expect("the lane is open")))
    }

    /// Drives until `done` says so, and gives what it found.
    fn until<T>(&self, mut done: impl FnMut(&mut Lane) -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            self.engine.drive(Instant::now(), 64).unwrap();
            if let Some(found) = self.with(&mut done) {
                return found;
            }
            assert!(Instant::now() < deadline, "it does not come");
            std::thread::yield_now();
        }
    }

    /// Sends bytes as they are.
    fn send(&self, bytes: &[u8]) {
        let mut buffer = self.engine.lock().pd().alloc_local(bytes.len()).unwrap();
        buffer.copy_from_slice(bytes);
        self.with(|lane| lane.queue(Work::send(buffer), Sent::Control, true));
    }

    fn violation(&self) -> String {
        match self.until(|lane| lane.ended()) {
            LaneFailure::Violation(what) => what.to_string(),
            other => panic!("{other}"),
        }
    }
}

fn end(faults: Option<FaultPlan>) -> End {
    let options = SoftOptions { wire: Wire::Local, faults, ..SoftOptions::default() };
    let retry = RetryOptions { ack_timeout: AckTimeout::new(10), ..RetryOptions::default() };
    let heartbeat = Duration::from_millis(10);
    // The tests say when it is driven.
    let driver = Driver::Caller;
    let engine = EngineOptions { retry: Some(retry), heartbeat, driver, ..EngineOptions::default() };
    let engine = Engine::new(&Device::soft(options).open().unwrap(), engine).unwrap();
    let lane = engine.open_lane(0, OPTIONS).unwrap();
    End { engine, lane }
}

fn blob(end: &End) -> Blob {
    let core = end.engine.lock();
    let lane = core.opening(end.lane).unwrap();
    Blob {
        kind: LinkKind::COLLECTIVE,
        job: 0,
        epoch: lane.options().epoch,
        soft: true,
        beats: true,
        endpoint: lane.endpoint(),
        credits: lane.options().credits,
        control_bytes_max: lane.options().control_bytes_max,
        process: Process::own(),
        regions: Vec::new(),
        payload: Vec::new(),
    }
}

fn pair() -> (End, End) {
    join(end(None), end(None))
}

fn join(left: End, right: End) -> (End, End) {
    let blobs = (blob(&left), blob(&right));
    left.engine.lock().connect_lane(left.lane, &blobs.1, Instant::now()).unwrap();
    right.engine.lock().connect_lane(right.lane, &blobs.0, Instant::now()).unwrap();
    (left, right)
}

#[test]
fn messages_arrive_in_order_and_credits_come_back() {
    let (left, right) = pair();
    let mut sent = 0;
    let mut taken = 0;
    while taken < 1000 {
        left.engine.drive(Instant::now(), 64).unwrap();
        left.with(|lane| {
            while lane.room() > 0 && sent < 1000 {
                lane.note(Imm::Freed { count: sent });
                sent += 1;
            }
        });
        right.engine.drive(Instant::now(), 64).unwrap();
        right.with(|lane| {
            while let Some(arrival) = lane.take() {
                let expected = Imm::Freed { count: taken };
                assert!(matches!(arrival, Arrival::Imm(imm, 0) if imm == expected), "{arrival:?}");
                taken += 1;
            }
        });
    }
    assert!(left.with(|lane| lane.ended()).is_none() && right.with(|lane| lane.ended()).is_none());
}

#[test]
fn control_messages_come_whole_and_only_as_long_as_the_peer_receives() {
    let (left, right) = pair();
    assert_eq!(left.with(|lane| lane.control(Kind(20), |body| body.put(&[7; 52]))), Ok(true));
    assert!(left.with(|lane| lane.control(Kind(20), |body| body.put(&[7; 53]))).is_err());
    let received = right.until(|lane| match lane.take() {
        Some(Arrival::Control(received)) => Some(received),
        _ => None,
    });
    let message = received.message().unwrap();
    assert_eq!((message.kind, message.body), (Kind(20), &[7; 52][..]));
    right.with(|lane| lane.recycle(received));
    left.until(|lane| lane.is_drained().then_some(()));
}

#[test]
fn a_sender_without_credits_or_room_waits() {
    let (left, right) = pair();
    left.with(|lane| {
        for count in 0..6 {
            assert!(lane.room() > 0);
            lane.note(Imm::Freed { count });
        }
        assert_eq!(lane.room(), 0);
        assert_eq!(lane.control(Kind(20), |_| Ok(())), Ok(false));
    });
    // Nothing comes back before it was taken.
    right.engine.drive(Instant::now(), 64).unwrap();
    right.until(|lane| (0..6).all(|_| lane.take().is_some()).then_some(()));
    left.until(|lane| (lane.room() == 6).then_some(()));
}

#[test]
fn immediates_of_no_kind_and_credits_for_nothing_are_violations() {
    for (imm, expected) in [
        (0, "unknown kind"),
        (0xf000_0000, "unknown kind"),
        (Imm::Credit { count: 5 }.encode(), "more credits than messages"),
    ] {
        let (left, right) = pair();
        left.with(|lane| lane.queue(Work::write(Segment::Empty, NOWHERE).with_imm(imm), Sent::Empty, true));
        let what = right.violation();
        assert!(what.contains(expected), "{what}");
        assert_eq!(right.with(|lane| lane.room()), 0);
    }
}

#[test]
fn sends_that_are_no_control_message_of_this_lane_or_of_a_stale_epoch_end_it() {
    let of_epoch = |epoch| {
        let mut bytes = [0; ENVELOPE_BYTES];
        encode(&mut bytes, epoch, Kind(20), |_| Ok(())).unwrap();
        bytes
    };
    let mut altered = of_epoch(3);
    altered[1] ^= 1;
    let messages: [(&[u8], &str); 4] = [
        (&altered, "was altered"),
        (&[9, 20, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0], "version 9"),
        (&[2, 20, 9, 0, 3, 0, 0, 0, 0, 0, 0, 0], "envelope says otherwise"),
        (&[2], "envelope says otherwise"),
    ];
    for (bytes, expected) in messages {
        let (left, right) = pair();
        left.send(bytes);
        let what = right.violation();
        assert!(what.contains(expected), "{what}");
    }
    let (left, right) = pair();
    left.send(&of_epoch(4));
    let failure = right.until(|lane| lane.ended());
    assert!(matches!(failure, LaneFailure::OtherEpoch { ours: 3, theirs: 4 }), "{failure}");
}

#[test]
fn more_messages_than_credits_are_a_violation() {
    let (left, right) = pair();
    for count in 0..9 {
        let work = Work::write(Segment::Empty, NOWHERE).with_imm(Imm::Freed { count }.encode());
        left.with(|lane| lane.queue(work, Sent::Empty, true));
        right.engine.drive(Instant::now(), 64).unwrap();
    }
    assert!(right.violation().contains("more messages than credits"));
}

#[test]
fn a_lane_that_the_peer_closed_carries_nothing_more_and_keeps_what_came() {
    let (left, right) = pair();
    left.with(|lane| lane.note(Imm::Freed { count: 1 }));
    assert!(left.engine.say_goodbye(&[left.lane], rdma_core::Deadline::after(Duration::from_secs(20))));
    left.engine.lock().fence_lane(left.lane, rdma_core::Deadline::after(Duration::from_secs(1))).unwrap();
    right.until(|lane| lane.is_closed().then_some(()));
    right.with(|lane| {
        assert_eq!(lane.room(), 0);
        assert!(matches!(lane.ended(), Some(LaneFailure::Closed)));
        assert!(matches!(lane.take(), Some(Arrival::Imm(Imm::Freed { count: 1 }, 0))));
    });
    assert!(left.engine.lock().lane(left.lane).is_none());
}

#[test]
fn a_name_of_a_lane_that_is_gone_names_no_other() {
    let (left, right) = pair();
    let soon = rdma_core::Deadline::after(Duration::from_secs(5));
    for _ in 0..2 {
        left.engine.lock().fence_lane(left.lane, soon).unwrap();
    }
    let next = left.engine.open_lane(0, OPTIONS).unwrap();
    let mut core = left.engine.lock();
    assert_ne!(next, left.lane);
    assert!(core.lane(left.lane).is_none() && core.opening(left.lane).is_none());
    let error = core.connect_lane(left.lane, &blob(&end(None)), Instant::now()).unwrap_err();
    assert!(matches!(error, crate::engine::SetupError::LaneGone), "{error}");
    drop(core);
    drop(right);
}

#[test]
fn a_lane_that_cannot_be_opened_is_an_error_and_leaves_no_queue_pair_behind() {
    use rdma_core::{InitOptions, WorkerOptions};
    let context = Device::soft(SoftOptions::default()).open().unwrap();
    let mut worker = context.worker(WorkerOptions { max_cqe: 64, ..WorkerOptions::default() }).unwrap();
    let (pd, init) = (context.alloc_pd().unwrap(), InitOptions::default());
    let mut open = |gid_index, options| {
        let memory = LaneMemory::alloc((0, &pd), options)?;
        OpeningLane::new(&mut worker, &pd, &init, gid_index, memory)
    };
    let gid = context.gids(init.port).unwrap()[0].index;
    let before = open(gid, OPTIONS).unwrap();
    for _ in 0..50 {
        // The device has no such address, and finds that at the end.
        let error = open(9999, OPTIONS).unwrap_err();
        assert!(matches!(error, crate::engine::SetupError::Connect(_)), "{error}");
    }
    for (credits, control_bytes_max) in [(u32::MAX, u32::MAX), (u32::MAX - 1, 1 << 30), (1 << 24, 1)] {
        let options = LaneOptions { credits, control_bytes_max, ..OPTIONS };
        let error = open(gid, options).unwrap_err();
        let refused = match credits {
            0x100_0000 => matches!(error, crate::engine::SetupError::Create(_)),
            _ => matches!(error, crate::engine::SetupError::Register(_)),
        };
        assert!(refused, "{error}");
    }
    let after = open(gid, OPTIONS).unwrap();
    assert_ne!(before.endpoint().qp_num, after.endpoint().qp_num);
}

/// Whether the engine wants to be driven, by its descriptor, within `millis`.
fn is_woken(engine: &Engine, millis: u32) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(millis) * 1_000_000 };
    poll(&mut [PollFd::new(&engine.wake_fd(), PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

#[test]
fn an_engine_that_is_armed_again_is_quiet_until_something_comes() {
    let (left, right) = pair();
    for count in 0..5 {
        // The first tells of what was before.
        left.engine.arm().unwrap();
        left.engine.arm().unwrap();
        while left.engine.drive(Instant::now(), 64).unwrap() > 0 {
            left.engine.arm().unwrap();
        }
        assert!(!is_woken(&left.engine, 0), "for nothing, in round {count}");
        right.with(|lane| lane.note(Imm::Freed { count }));
        assert!(is_woken(&left.engine, 900), "not told in round {count}");
        left.until(|lane| lane.take());
    }
}
