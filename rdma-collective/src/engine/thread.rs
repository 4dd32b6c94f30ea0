//! The engine's own thread: it drives while nobody else does, and sleeps while nothing is due.
//!
//! A caller that waits drives by itself, which saves a switch between threads for each completion. So the thread steps
//! back when it finds that callers are there, and looks again a little later; it comes at once when it is nudged, which
//! a caller does that leaves something pending.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::wait::{BUDGET, SLEEP_MAX};
use super::{Core, Shared};
use crate::engine::SetupError;

/// How long the thread stays away from an engine that callers drive, unless it is nudged.
const AWAY: Duration = Duration::from_millis(50);

/// How long what a caller has begun is left to it, and how long the thread stays away while callers begin such: they are not to
/// wake it each time.
pub(crate) const HANDOVER_DELAY: Duration = Duration::from_millis(1);

/// Who looks after an engine; part of its core.
#[derive(Debug, Default)]
pub(super) struct Attendance {
    /// Callers in a blocking call.
    pub(super) waiting: u32,
    /// How often callers have driven.
    pub(super) visits: u64,
    /// How often they were left what they began.
    left: u64,
    /// The thread has left the engine to callers.
    away: bool,
    /// When the thread looks again by itself, while it is away or sleeps for an event.
    until: Option<Instant>,
}

/// Wakes who waits by a descriptor, and tells the thread to stop.
#[derive(Debug)]
pub(super) struct Nudge {
    fd: OwnedFd,
    pub(super) stop: AtomicBool,
}

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Thread {
    shared: Arc<Shared>,
    handle: Option<JoinHandle<()>>,
    /// The process that started it: a forked child has no such thread.
    pub(super) pid: u32,
}

impl Nudge {
    pub(super) fn new() -> Result<Self, SetupError> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let failed = |source: rustix::io::Errno| SetupError::Descriptor {
            what: "the engine's thread",
            source: source.into(),
        };
        Ok(Self { fd: fd.map_err(failed)?, stop: AtomicBool::new(false) })
    }

    pub(super) fn send(&self) {
        // A counter that is full is readable all the same.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn clear(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }
}

impl Thread {
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Self, SetupError> {
        let own = Arc::clone(shared);
        let handle = Builder::new().name("rdma-engine".to_owned()).spawn(move || run(&own));
        let handle = handle.map_err(|source| SetupError::Thread { source })?;
        Ok(Self { shared: Arc::clone(shared), handle: Some(handle), pid: std::process::id() })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        if self.pid != std::process::id() {
            std::mem::forget(handle);
            return;
        }
        let nudge = &self.shared.nudge;
        nudge.stop.store(true, Ordering::Release);
        nudge.send();
        // A task that it woke may be the one that lets go of the engine; then it ends by itself.
        if handle.thread().id() != std::thread::current().id() {
            let _ = handle.join();
        }
    }
}

impl Attendance {
    /// Whether the thread has to be told of what `core` waits for.
    fn needs_thread(core: &Core) -> bool {
        let Self { waiting, away, until, .. } = core.attendance;
        let Some(until) = until.filter(|_| waiting == 0) else { return false };
        core.next_pending().is_some_and(|due| due < until) || away && core.is_engaged(None)
    }
}

impl Core {
    /// Whether a caller waits, who goes on with what it waits for.
    pub(crate) fn is_awaited(&self) -> bool {
        self.attendance.waiting > 0
    }

    /// Whether that is one caller alone. Others may still want to begin something.
    pub(crate) fn is_awaited_by_one(&self) -> bool {
        self.attendance.waiting == 1
    }

    /// Whether anything is pending that is not left to its caller beyond `now`.
    fn is_engaged(&self, now: Option<Instant>) -> bool {
        let mut services = self.services.iter().filter_map(Weak::upgrade);
        services.any(|service| {
            let service = service.lock().unwrap_or_else(PoisonError::into_inner);
            let left = service.caller_owned_until().is_some_and(|until| now.is_none_or(|now| now < until));
            !left && service.next_deadline().is_some()
        })
    }

    /// Something was begun that is [left to its caller](super::Service::caller_owned_until).
    pub(crate) fn leave(&mut self) {
        self.attendance.left += 1;
    }
}

impl Shared {
    /// Callers leave the engine: the thread comes if it has to.
    pub(super) fn nudge(&self, core: &Core) {
        if Attendance::needs_thread(core) {
            self.nudge.send();
        }
    }

    /// Lets `timeout` pass, or until an event or a nudge: of the engine's thread, or of the caller that leads.
    pub(super) fn poll(&self, nudge: &Nudge, timeout: Duration) -> bool {
        let mut fds = [PollFd::new(&self.wake_fd, PollFlags::IN), PollFd::new(&nudge.fd, PollFlags::IN)];
        // An interrupted or refused sleep is a short one.
        poll(&mut fds, Some(&timespec(timeout))) != Ok(0)
    }

    /// Lets `timeout` pass; the engine's thread can be `nudged`.
    pub(super) fn pause(&self, nudged: bool, timeout: Duration) {
        if nudged {
            let _ = poll(&mut [PollFd::new(&self.nudge.fd, PollFlags::IN)], Some(&timespec(timeout)));
        } else {
            std::thread::sleep(timeout);
        }
    }
}

fn timespec(timeout: Duration) -> Timespec {
    Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() }
}

fn run(shared: &Shared) {
    let (mut seen, mut left) = (0, 0);
    while !shared.nudge.stop.load(Ordering::Acquire) {
        let mut core = shared.lock();
        let Attendance { waiting, visits, .. } = core.attendance;
        let now = Instant::now();
        if waiting > 0 || (visits != seen && !core.is_engaged(Some(now))) {
            // What is pending is left to its caller until then; who begins one such begins the next.
            let leaves = core.attendance.left != left || waiting == 0 && core.next_pending().is_some();
            let pause = if leaves { HANDOVER_DELAY } else { AWAY };
            (seen, left) = (visits, core.attendance.left);
            (core.attendance.away, core.attendance.until) = (true, now.checked_add(pause));
            drop(core);
            shared.pause(true, pause);
            shared.nudge.clear();
            let mut core = shared.lock();
            (core.attendance.away, core.attendance.until) = (false, None);
            continue;
        }
        let happened = core.drive(Instant::now, BUDGET);
        let now = core.driven();
        core.flush();
        if happened > 0 {
            continue;
        }
        let due = core.next_deadline().map_or(SLEEP_MAX, |due| due.saturating_duration_since(now));
        let due = due.min(SLEEP_MAX);
        core.attendance.until = now.checked_add(due);
        shared.sleep(core, due, true);
        shared.lock().attendance.until = None;
        shared.nudge.clear();
    }
}
