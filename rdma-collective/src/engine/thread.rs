//! The engine's own thread: it drives while nobody else does, and sleeps while nothing is due.
//!
//! A caller that waits drives by itself, which saves a switch between threads for each completion. So the thread steps
//! back when it finds that callers drive, and looks again after a pause. A caller that stops driving and leaves
//! something pending nudges the thread, which then comes at once. `attendance` records which of these it does. Sleeping
//! itself, and the callers' loop, are in `wait`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::attendance::{Attendance, ThreadEvent};
use super::wait::{BUDGET, SLEEP_MAX};
use super::{EngineState, Shared};
use crate::engine::SetupError;

/// The pause of the thread while callers drive, unless it is nudged. It costs 20 wake-ups per second, and delays only
/// work that a caller left without a nudge.
const AWAY: Duration = Duration::from_millis(50);

/// The time for which an operation stays its caller's before the engine's thread takes it over (the hand-over delay).
///
/// The thread pauses for the same time while callers begin such operations: otherwise each operation would have to wake
/// it, at the cost of a system call in an operation of less than a microsecond.
pub(crate) const HANDOVER_DELAY: Duration = Duration::from_millis(1);

/// Looks in a row that leave the engine to a caller that holds the lock, before the thread waits for the lock: each
/// release would have to wake a thread that waits, at the cost of a system call.
const LOCK_TRIES: u32 = 4;

/// An eventfd that wakes a sleeping thread, and a flag that asks the engine's thread to stop.
#[derive(Debug)]
pub(crate) struct Nudge {
    fd: OwnedFd,
    pub(super) stop: AtomicBool,
}

/// The handle of the engine's thread, which ends when the handle is dropped.
#[derive(Debug)]
pub(super) struct Thread {
    shared: Arc<Shared>,
    handle: Option<JoinHandle<()>>,
}

impl Nudge {
    pub(crate) fn new() -> Result<Self, SetupError> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let failed = |source: rustix::io::Errno| SetupError::Descriptor {
            what: "the engine's thread",
            source: source.into(),
        };
        Ok(Self { fd: fd.map_err(failed)?, stop: AtomicBool::new(false) })
    }

    pub(crate) fn send(&self) {
        // The write fails only when the counter is full, and then the descriptor is readable already.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Takes what was sent, and returns whether anything was.
    pub(crate) fn clear(&self) -> bool {
        rustix::io::read(&self.fd, &mut [0; 8]).is_ok()
    }
}

impl Thread {
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Self, SetupError> {
        let own = Arc::clone(shared);
        let handle = Builder::new().name("rdma-engine".to_owned()).spawn(move || run(&own));
        let handle = handle.map_err(|source| SetupError::Thread { source })?;
        Ok(Self { shared: Arc::clone(shared), handle: Some(handle) })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        let nudge = &self.shared.nudge;
        nudge.stop.store(true, Ordering::Release);
        nudge.send();
        // The thread itself may drop the last handle, in a task that it woke. A thread cannot join itself; it ends
        // after this drop because of the stop flag.
        if handle.thread().id() != std::thread::current().id() {
            let _ = handle.join();
        }
    }
}

impl EngineState {
    /// Whether a caller waits. That caller drives, so what it waits for goes on.
    pub(crate) fn is_awaited(&self) -> bool {
        self.attendance.waiting > 0
    }

    /// Whether exactly one caller waits. Other threads may still begin operations.
    pub(crate) fn is_awaited_by_one(&self) -> bool {
        self.attendance.waiting == 1
    }

    /// Counts an operation that was begun and is [its caller's for now](super::Service::caller_owned_until).
    pub(crate) fn leave(&mut self) {
        self.attendance.left += 1;
    }
}

impl Shared {
    /// Wakes the engine's thread if it is needed. Called by callers when they stop driving.
    pub(super) fn nudge(&self, core: &EngineState) {
        if core.attendance.needs_thread(|| core.next_pending(), || core.services.is_engaged(None)) {
            self.nudge.send();
        }
    }

    /// Sleeps for `timeout`, or until an event or a nudge, and returns whether something came before the timeout.
    pub(super) fn poll(&self, nudge: &Nudge, timeout: Duration) -> bool {
        let mut fds = [PollFd::new(&self.wake_fd, PollFlags::IN), PollFd::new(&nudge.fd, PollFlags::IN)];
        // An interrupted or refused sleep counts as a short one: the caller looks and sleeps again.
        poll(&mut fds, Some(&timespec(timeout))) != Ok(0)
    }

    /// Sleeps for `timeout` without looking at the device; the engine's thread (`nudged`) also wakes at its nudge.
    pub(super) fn pause(&self, nudged: bool, timeout: Duration) {
        if nudged {
            let _ = poll(&mut [PollFd::new(&self.nudge.fd, PollFlags::IN)], Some(&timespec(timeout)));
        } else {
            std::thread::sleep(timeout);
        }
    }

    /// Leaves the engine to its callers for `pause`, or until a nudge. Returns how often the thread may find the lock
    /// taken before it waits for the lock: `tries`, but never after a nudge.
    fn step_back(&self, pause: Duration, tries: u32) -> u32 {
        self.pause(true, pause);
        if self.nudge.clear() { 0 } else { tries }
    }
}

fn timespec(timeout: Duration) -> Timespec {
    Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() }
}

/// The loop of the engine's thread.
fn run(shared: &Shared) {
    let (mut seen, mut left, mut tries) = (0, 0, 0);
    while !shared.nudge.stop.load(Ordering::Acquire) {
        let core = if tries == 0 { Some(shared.lock()) } else { shared.try_lock() };
        let Some(mut core) = core else {
            tries = shared.step_back(HANDOVER_DELAY, tries - 1);
            continue;
        };
        tries = 0;
        core.attendance.on_thread(ThreadEvent::Return);
        let Attendance { waiting, visits, .. } = core.attendance;
        let now = Instant::now();
        if waiting > 0 || (visits != seen && !core.services.is_engaged(Some(now))) {
            // Step back. A caller that left an operation pending is likely to begin another: then look again after the
            // hand-over delay, so that the operation is not older than that when the thread takes it over.
            let leaves = core.attendance.left != left || waiting == 0 && core.next_pending().is_some();
            let pause = if leaves { HANDOVER_DELAY } else { AWAY };
            (seen, left) = (visits, core.attendance.left);
            core.attendance.on_thread(ThreadEvent::StepBack { until: now + pause });
            drop(core);
            tries = shared.step_back(pause, LOCK_TRIES);
            continue;
        }
        let happened = core.drive(Instant::now, BUDGET);
        let now = core.now();
        let (mut core, released) = shared.flush(core);
        if happened > 0 || released {
            drop(core);
            shared.let_others();
            continue;
        }
        let due = core.next_deadline().map_or(SLEEP_MAX, |due| due.saturating_duration_since(now));
        let due = due.min(SLEEP_MAX);
        core.attendance.on_thread(ThreadEvent::Sleep { until: now + due });
        shared.sleep(core, due, true);
        shared.nudge.clear();
    }
}
