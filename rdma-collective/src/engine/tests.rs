//! Tests of wake-ups between threads of one engine, of an engine whose device has failed, and of a forked child.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::task::{Poll, Wake, Waker};

use rdma_core::error::PollError;
use rdma_core::{Deadline, Device, SoftOptions, WorkerOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::link::LaneOptions;
use std::time::Duration;

fn engine(driver: Driver) -> Engine {
    let context = Device::soft(SoftOptions::default()).open().unwrap();
    Engine::new(&context, EngineOptions { driver, ..EngineOptions::default() }).unwrap()
}

impl Engine {
    /// This engine, as a child finds it that was forked from this process.
    pub(crate) fn forked(&self) -> Self {
        let Handle { shared, id, .. } = &**self.handle.unasked();
        let handle =
            Handle { shared: Arc::clone(shared), _thread: None, id: id.clone(), _present: metrics::engine() };
        Self { handle: OwnProcess::of_another_process(Arc::new(handle)) }
    }
}

impl EngineState {
    /// As if the device denied that the queue pairs there are now are its own.
    pub(crate) fn disown_queue_pairs(&mut self) {
        let worker = &mut self.rails[0].worker;
        *worker = worker.context().worker(WorkerOptions::default()).unwrap();
    }

    /// When anything is due, besides a sign of life.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.next_pending()
    }
}

/// Asserts that the engine's thread drives it less often than it is looked at.
fn assert_rests(engine: &Engine) {
    // The thread may sleep already.
    engine.shared().nudge.send();
    let look = |_| {
        std::thread::sleep(Duration::from_millis(10));
        engine.lock().now()
    };
    let driven: HashSet<Instant> = (0..40).map(look).collect();
    assert!(driven.len() < 10, "it was driven again at each of {} looks", driven.len());
}

#[test]
fn an_engine_whose_device_has_failed_rests() {
    let engine = engine(Driver::Thread);
    engine.lock().fail(0, PollError::Overrun);
    assert!(engine.drive(Instant::now(), 1).is_err());
    assert_rests(&engine);
    // The sleep ends at once all the same.
    let started = Instant::now();
    drop(engine);
    assert!(started.elapsed() < Duration::from_millis(700), "{:?}", started.elapsed());
}

#[test]
fn an_engine_one_of_whose_devices_has_failed_goes_on_with_the_other_and_rests() {
    let open = || (Device::soft(SoftOptions::default()).open().unwrap(), EngineOptions::default());
    let engine = Engine::over(&[open(), open()]).unwrap();
    engine.lock().fail(1, PollError::Overrun);
    engine.drive(Instant::now(), 1).unwrap();
    let options = LaneOptions { epoch: 0, max_send_wr: 16, credits: 6, control_bytes_max: 64 };
    engine.open_lane(0, options.clone()).unwrap();
    let refused = engine.open_lane(1, options).unwrap_err();
    assert!(matches!(refused, SetupError::DeviceFailed { number: 1 }), "{refused}");
    assert_rests(&engine);
    engine.lock().fail(0, PollError::Overrun);
    assert!(engine.drive(Instant::now(), 1).is_err());
}

/// Something to do, once.
struct Once(bool);

impl Service for Once {
    fn advance(&mut self, _: &mut EngineState, _: Instant) -> bool {
        std::mem::take(&mut self.0)
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }
}

#[test]
fn callers_that_wait_by_the_descriptor_are_told_of_what_the_thread_has_done() {
    let engine = engine(Driver::Thread);
    let service = Arc::new(Mutex::new(Once(false)));
    engine.lock().register(&service);
    for _ in 0..3 {
        engine.arm().unwrap();
        while engine.drive(Instant::now(), 16).unwrap() > 0 {}
        assert!(!is_woken(engine.wake_fd(), 0), "for nothing");
        service.lock().unwrap().0 = true;
        engine.shared().nudge.send();
        assert!(is_woken(engine.wake_fd(), 5), "the thread has taken it, and nobody is told");
    }
}

fn is_woken(fd: BorrowedFd<'_>, seconds: i64) -> bool {
    let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

#[test]
fn callers_that_wait_by_the_descriptor_are_told_of_what_another_caller_has_done() {
    for driver in [Driver::Thread, Driver::Caller] {
        let engine = engine(driver);
        // The thread leaves it to callers.
        engine.lock().attendance.waiting += 1;
        let service = Arc::new(Mutex::new(Once(false)));
        engine.lock().register(&service);
        for with_the_core in [false, true, false] {
            engine.arm().unwrap();
            assert!(!is_woken(engine.wake_fd(), 0), "for nothing, by {driver:?}");
            if with_the_core {
                // Something may have ended by it.
                engine.lock_with(|_| ());
            } else {
                service.lock().unwrap().0 = true;
                while engine.drive(Instant::now(), 16).unwrap() > 0 {}
            }
            assert!(
                is_woken(engine.wake_fd(), 0),
                "another caller has taken it, and nobody is told, by {driver:?}"
            );
        }
        // Not once for each.
        engine.arm().unwrap();
        assert!(!is_woken(engine.wake_fd(), 0), "of what it was told of, by {driver:?}");
    }
}

#[test]
fn what_happened_before_it_was_armed_is_told_when_it_is() {
    for driver in [Driver::Thread, Driver::Caller] {
        let engine = engine(driver);
        for _ in 0..3 {
            engine.lock_with(|_| ());
            // A thread that was woken may look too soon to see this.
            engine.lock_with(|_| ());
            engine.arm().unwrap();
            while engine.drive(Instant::now(), 16).unwrap() > 0 {}
            assert!(is_woken(engine.wake_fd(), 0), "it sleeps on, by {driver:?}");
            engine.arm().unwrap();
            assert!(!is_woken(engine.wake_fd(), 0), "for nothing, by {driver:?}");
        }
    }
}

/// Another caller of an engine, who waits until told to go, and sleeps meanwhile.
fn sleeper<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    engine: &'scope Engine,
    goes: &'scope AtomicBool,
) -> std::thread::ScopedJoinHandle<'scope, Option<()>> {
    let waits = scope.spawn(|| {
        let go = |_: &mut EngineState, _| {
            if goes.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
        };
        engine.wait_for(Deadline::after(Duration::from_secs(20)), go)
    });
    while !engine.lock().has_sleeper() {
        std::thread::yield_now();
    }
    waits
}

impl EngineState {
    fn has_sleeper(&self) -> bool {
        self.attendance.sleeper() == Sleeper::Leader || self.followers > 0
    }
}

#[test]
fn a_caller_that_sleeps_for_all_looks_at_what_others_begin_or_end() {
    for driver in [Driver::Thread, Driver::Caller] {
        let engine = engine(driver);
        let started = Instant::now();
        for _ in 0..8 {
            let goes = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let waits = sleeper(scope, &engine, &goes);
                engine.lock_with(|_| goes.store(true, Ordering::Release));
                assert!(waits.join().unwrap().is_some());
            });
        }
        // By itself it looks once a second.
        let took = started.elapsed();
        assert!(took < Duration::from_secs(4), "{took:?} by {driver:?}");
    }
}

/// Something that has to be done at a time.
struct Due(Option<Instant>);

impl Service for Due {
    fn advance(&mut self, _: &mut EngineState, now: Instant) -> bool {
        self.0.take_if(|due| *due <= now).is_some()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.0
    }
}

#[test]
fn a_caller_that_sleeps_for_all_wakes_in_time_for_what_another_has_begun() {
    let engine = engine(Driver::Caller);
    let service = Arc::new(Mutex::new(Due(None)));
    engine.lock().register(&service);
    let goes = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waits = sleeper(scope, &engine, &goes);
        let started = Instant::now();
        for _ in 0..8 {
            let due = Instant::now() + Duration::from_millis(20);
            engine.lock_with(|_| service.lock().unwrap().0 = Some(due));
            while service.lock().unwrap().0.is_some() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let took = started.elapsed();
        engine.lock_with(|_| goes.store(true, Ordering::Release));
        assert!(waits.join().unwrap().is_some());
        assert!(took < Duration::from_secs(4), "{took:?}");
    });
}

#[test]
fn a_call_that_panics_waits_no_more() {
    let engine = engine(Driver::Thread);
    let call = || {
        engine.wait_for(Deadline::after(Duration::from_secs(20)), |_, _| -> Poll<()> { panic!("as asked") })
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err());
    // Else the engine's thread stays away for good.
    assert_eq!(engine.lock().attendance.waiting, 0);
}

struct Tell(mpsc::Sender<()>);

impl Wake for Tell {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

/// Ends something and counts that for nothing.
struct Ends(Option<Waker>);

impl Service for Ends {
    fn advance(&mut self, core: &mut EngineState, _: Instant) -> bool {
        self.0.take().into_iter().for_each(|waker| core.wake(waker));
        false
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }
}

#[test]
fn tasks_are_woken_though_nothing_else_happened() {
    for driver in [Driver::Thread, Driver::Caller] {
        let engine = engine(driver);
        let (told, is_told) = mpsc::channel();
        let service = Arc::new(Mutex::new(Ends(Some(Waker::from(Arc::new(Tell(told)))))));
        engine.lock().register(&service);
        engine.arm().unwrap();
        match driver {
            Driver::Thread => engine.shared().nudge.send(),
            Driver::Caller => assert_eq!(engine.drive(Instant::now(), 16).unwrap(), 0),
        }
        is_told.recv_timeout(Duration::from_secs(20)).expect("the task is never woken");
        assert!(is_woken(engine.wake_fd(), 20));
    }
}

#[test]
fn what_a_forked_child_drops_of_an_engine_stops_no_thread_and_waits_for_none() {
    let handle = engine(Driver::Thread).handle.into_inner().unwrap();
    let shared = Arc::clone(&handle.shared);
    // As the child finds it.
    drop(Engine { handle: OwnProcess::of_another_process(handle) });
    let service = Arc::new(Mutex::new(Once(true)));
    shared.lock().register(&service);
    shared.nudge.send();
    let until = Instant::now() + Duration::from_secs(20);
    while service.lock().unwrap().0 {
        assert!(Instant::now() < until, "the parent's thread has gone");
        std::thread::sleep(Duration::from_millis(1));
    }
    shared.nudge.stop.store(true, Ordering::Release);
    shared.nudge.send();
}

#[test]
fn beats_without_a_pause_are_refused() {
    let context = Device::soft(SoftOptions::default()).open().unwrap();
    for heartbeat in [Duration::ZERO, Duration::from_micros(999)] {
        let made = Engine::new(&context, EngineOptions { heartbeat, ..EngineOptions::default() });
        assert!(matches!(made, Err(SetupError::PeerTimeout { .. })), "{heartbeat:?}");
    }
}

/// A caller that nobody wakes sleeps for up to a second each time.
#[test]
fn whoever_waits_is_roused_whether_the_lock_is_free_or_held() {
    const ROUNDS: u32 = 30;
    for driver in [Driver::Thread, Driver::Caller] {
        let engine = engine(driver);
        let begun = Instant::now();
        for round in 0..ROUNDS {
            let (asked, is_held) = (AtomicBool::new(false), round % 2 == 0);
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| {
                    let deadline = Deadline::after(Duration::from_secs(60));
                    engine.wait_for(deadline, |_, _| match asked.load(Ordering::Relaxed) {
                        true => Poll::Ready(()),
                        false => Poll::Pending,
                    })
                });
                std::thread::sleep(Duration::from_millis(5));
                let core = is_held.then(|| engine.lock());
                asked.store(true, Ordering::Relaxed);
                engine.rouse();
                drop(core);
                assert_eq!(waits.join().unwrap(), Some(()));
            });
        }
        assert!(begun.elapsed() < ROUNDS * Duration::from_millis(250), "it was {:?}", begun.elapsed());
    }
}
