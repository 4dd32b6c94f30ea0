//! The engine's own thread: it drives while nobody else does, and sleeps while nothing is due.
//!
//! A caller that waits drives by itself, which saves a switch between threads for each completion. So the thread steps
//! back when it finds that callers are there, and looks again a little later; it comes at once when it is nudged, which
//! a caller does that leaves something pending.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::wait::{BUDGET, SLEEP_MAX};
use super::{Core, Shared};
use crate::error::SetupError;

/// How long the thread stays away from an engine that callers drive, unless it is nudged.
const AWAY: Duration = Duration::from_millis(50);

/// Who looks after an engine; part of its core.
#[derive(Debug, Default)]
pub(super) struct Attendance {
    /// Callers in a blocking call.
    pub(super) waiting: u32,
    /// How often callers have driven.
    pub(super) visits: u64,
    /// The thread has left the engine to callers.
    away: bool,
    /// When the thread looks again by itself, while it sleeps for an event.
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
        waiting == 0
            && (away || until.is_some())
            && match (core.next_pending(), until) {
                (None, _) => false,
                (Some(_), None) => true,
                (Some(due), Some(until)) => due < until,
            }
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
    let mut seen = 0;
    while !shared.nudge.stop.load(Ordering::Acquire) {
        let mut core = shared.lock();
        let Attendance { waiting, visits, .. } = core.attendance;
        if waiting > 0 || (visits != seen && core.next_pending().is_none()) {
            seen = visits;
            core.attendance.away = true;
            drop(core);
            shared.pause(true, AWAY);
            shared.nudge.clear();
            shared.lock().attendance.away = false;
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
