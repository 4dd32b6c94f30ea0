//! The fast path's gate: the state of a communicator that the caller's thread may read without a lock, and the slot of
//! a deferred operation. `progress` has the states, `state` most of the events; `execute` runs the operations.
//!
//! While the gate is open, no operation is under way and no failure is known. Only the holder of the communicator
//! begins operations, so nobody else counts them, and the next one may run in the caller's thread.
//!
//! An operation that owns its memory may begin there and find that the messages of its peers have not arrived. It
//! becomes a deferred operation: begun by the caller, not yet the engine's. A caller that waits for it polls first, and
//! may find it done. The engine takes it over when that poll is in vain, when another operation begins behind it, when
//! its handle is dropped, and in any case soon after the engine is driven next. So it makes progress, and ends at its
//! deadline, though nobody waits. Models of this run under `cfg(loom)`.

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
#[cfg(all(test, loom))]
use loom::sync::{Mutex, MutexGuard};
use std::fmt;
use std::sync::PoisonError;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
#[cfg(not(all(test, loom)))]
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rustix::time::{ClockId, clock_gettime};

use super::host::HostGroup;
use super::links::Scratch;
use super::progress::{Event, Progress};
use crate::collective::execute::Job;
use crate::engine::{Engine, HANDOVER_DELAY};
use crate::log::Held;

/// Interval at which fast-path calls drive an engine that has no thread. 1 ms: rare beside an operation of a few
/// microseconds.
const DRIVE_EVERY: Duration = Duration::from_millis(1);

/// The progress, the failure and the counters of a communicator, which the fast path reads without a lock.
#[derive(Debug)]
pub(crate) struct FastPathGate {
    /// The [`Progress`], by its number. [`on`](Self::on) alone writes it, and no copy of it exists.
    progress: AtomicU8,
    /// Whether a failure is known. Not a state: see `progress`.
    failed: AtomicBool,
    /// Number of operations begun, and so the number of the next one. Read and written with `Relaxed`: either the
    /// reader is the writer, or the writer has changed the progress (`Release`) in between.
    sequence: AtomicU64,
    /// Number of handles given out.
    handles: AtomicU64,
    /// The slot of one deferred operation. The engine takes this lock last, under its own and the state's: whoever
    /// holds it must take no other, or the two deadlock.
    slot: Mutex<Deferred>,
}

impl FastPathGate {
    pub(super) fn new(scratch: Box<Scratch>) -> Self {
        Self {
            progress: AtomicU8::new(Progress::Idle as u8),
            failed: AtomicBool::default(),
            sequence: AtomicU64::default(),
            handles: AtomicU64::default(),
            slot: Mutex::new(Deferred { begun: None, scratch }),
        }
    }

    /// Whether the progress is in `state`.
    pub(super) fn is(&self, state: Progress) -> bool {
        // Pairs with `on`: a reader that sees a state also sees all that led to it, such as the count of the operation
        // that ended before.
        self.progress.load(Ordering::Acquire) == state as u8
    }

    pub(super) fn progress(&self) -> Progress {
        Progress::from_code(self.progress.load(Ordering::Acquire))
    }

    /// Changes the progress by `event`. Only the party that may end the present state calls this, so load and store may
    /// be two steps.
    #[inline]
    pub(super) fn on(&self, event: Event) {
        let state = self.progress();
        match state.on(event) {
            Some(next) => self.progress.store(next as u8, Ordering::Release),
            // The party goes on as if the event had not been. So an operation may wait in vain, up to its deadline.
            None => debug_assert!(false, "{event:?} in {state:?}"),
        }
    }

    /// Whether an operation may run in the thread of the communicator's holder.
    pub(crate) fn is_open(&self) -> bool {
        // The failure second: whoever ends an operation tells its failure before it changes the progress.
        self.is(Progress::Idle) && !self.has_failed()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    pub(super) fn set_failed(&self, failed: bool) {
        self.failed.store(failed, Ordering::Release);
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Relaxed)
    }

    /// Returns the number of another handle. Call it only as the holder of the communicator, because load and store are
    /// two steps.
    pub(super) fn next_id(&self) -> u64 {
        let id = self.handles.load(Ordering::Relaxed);
        self.handles.store(id + 1, Ordering::Relaxed);
        id
    }

    /// Counts an operation that begins, or that the fast path has done. Load and store are two steps: the caller holds
    /// the communicator with the gate open, or the state's lock.
    pub(super) fn count(&self) {
        self.sequence.store(self.sequence() + 1, Ordering::Relaxed);
    }
}

/// Everything an operation needs to run in the caller's thread, without the engine.
pub(crate) struct FastPath<'a> {
    pub(crate) host: &'a HostGroup,
    pub(crate) scratch: &'a mut Scratch,
    /// Number of the operation.
    pub(crate) sequence: u64,
    pub(crate) gate: &'a FastPathGate,
    pub(crate) drives: EngineDrive<'a>,
}

/// The duty to drive the engine between fast-path operations, so that other communicators on it make progress.
pub(crate) struct EngineDrive<'a> {
    pub(super) engine: &'a Engine,
    /// Time at which the engine was driven last; `None` where a [thread](crate::engine::Driver::Thread) drives it.
    pub(super) driven: &'a mut Option<Instant>,
}

impl EngineDrive<'_> {
    /// Drives the engine if that is due. `now` is called only where callers drive, because a thread needs no clock
    /// here.
    #[inline]
    pub(crate) fn now_and_then(&mut self, now: impl FnOnce() -> Instant) {
        let Some(driven) = self.driven else { return };
        let now = now();
        if now.saturating_duration_since(*driven) >= DRIVE_EVERY {
            *driven = now;
            // Do not wait for the lock: whoever holds it drives.
            self.engine.try_drive();
        }
    }
}

impl FastPath<'_> {
    /// Ends an operation that is done and has taken everything from its peers' messages. Drives the engine if that is
    /// due, because a caller that never leaves the fast path must still drive it for other communicators.
    #[inline]
    pub(crate) fn done(mut self, now: impl FnOnce() -> Instant) {
        self.host.end_round();
        self.gate.count();
        self.drives.now_and_then(now);
    }
}

/// The slot's content: the deferred operation, and the scratch memory with which its caller polls it.
pub(super) struct Deferred {
    begun: Option<DeferredOp>,
    scratch: Box<Scratch>,
}

/// An operation that the fast path has begun and not finished.
pub(super) struct DeferredOp {
    pub(super) id: u64,
    pub(super) job: Box<Job>,
    pub(super) deadline: Deadline,
    pub(super) started: Instant,
}

/// The deferred operation.
impl FastPathGate {
    /// Holds an operation that has begun, until somebody polls it or takes it.
    pub(super) fn defer(&self, begun: DeferredOp) {
        self.slot().begun = Some(begun);
        // After the operation is in: a thread that sees the state must find it.
        self.on(Event::Defer);
    }

    /// Polls operation `id` by `is_done`, and returns its job when it is done.
    pub(super) fn finish(
        &self,
        id: u64,
        is_done: impl FnOnce(&mut DeferredOp, &mut Scratch) -> bool,
    ) -> Option<Box<Job>> {
        let mut slot = self.slot();
        let Deferred { begun, scratch } = &mut *slot;
        let done = begun.take_if(|begun| begun.id == id && is_done(begun, scratch))?;
        // Still under the lock, so that a thread waiting in `Shared::hand_to_engine` finds the slot empty and not half
        // done.
        self.on(Event::Finish);
        Some(done.job)
    }

    /// Takes the deferred operation for the engine, which [adopts](Event::Adopt) it under the same hold of the state's
    /// lock.
    pub(super) fn take(&self) -> Option<DeferredOp> {
        self.slot().begun.take()
    }

    /// Takes the operation for the engine if its caller has had it for the hand-over delay, and nobody polls it now.
    /// Only tries the lock, because the engine must not wait for a caller that polls.
    pub(super) fn take_due(&self, now: Instant) -> Option<DeferredOp> {
        let mut slot = self.slot.try_lock().ok().filter(|_| self.is(Progress::Deferred))?;
        slot.begun.take_if(|begun| begun.due() <= now)
    }

    /// Time at which the operation is [due](Self::take_due). `None` also while somebody polls it: that thread takes it
    /// further or hands it over.
    pub(super) fn due(&self) -> Option<Instant> {
        if !self.is(Progress::Deferred) {
            return None;
        }
        self.slot.try_lock().ok()?.begun.as_ref().map(DeferredOp::due)
    }

    pub(super) fn slot(&self) -> Held<MutexGuard<'_, Deferred>> {
        // A panic leaves no half-done state here: the operation goes in and out in one statement.
        Held::lock(|| self.slot.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl DeferredOp {
    fn due(&self) -> Instant {
        self.started + HANDOVER_DELAY
    }
}

impl fmt::Debug for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred")
            .field("id", &self.begun.as_ref().map(|begun| begun.id))
            .finish_non_exhaustive()
    }
}

/// Bound on how late the coarse clock is: 50 ms, more than a tick of any kernel. A virtual machine whose processors all
/// stood still can exceed it. An operation whose deadline has passed meanwhile then begins, and ends at once, as one
/// that was begun before.
const BEHIND: Duration = Duration::from_millis(50);

/// A cheap clock that tells whether a deadline is far ahead, for a call of a microsecond: `CLOCK_MONOTONIC_COARSE`
/// (`clock_gettime(2)`), which shows the time of the kernel's last tick.
#[derive(Debug, Clone, Copy)]
pub(super) struct CoarseClock {
    /// The coarse time at creation.
    coarse: Duration,
    /// A time that was further ahead than `within` at creation, whatever the coarse clock said; `None` if no such time
    /// exists, so that the exact clock is always asked.
    ahead: Option<Instant>,
}

impl CoarseClock {
    /// A clock for questions about at most `within`.
    pub(super) fn new(within: Duration) -> Self {
        let ahead = Instant::now().checked_add(BEHIND).and_then(|ahead| ahead.checked_add(within));
        Self { coarse: coarse(), ahead }
    }

    /// Whether `deadline` is more than `within` ahead. Asks the exact clock only where the coarse one cannot tell.
    #[inline]
    pub(super) fn leaves(&self, deadline: Deadline, within: impl FnOnce() -> Duration) -> bool {
        let passed = coarse().saturating_sub(self.coarse);
        // Both readings are of one clock that never runs ahead of the exact one, so `passed` errs by `BEHIND` at most,
        // which `ahead` includes.
        let is_far = |ahead| deadline.instant().saturating_duration_since(ahead) > passed;
        let leaves_exactly =
            || Instant::now().checked_add(within()).is_some_and(|then| !deadline.expired_at(then));
        self.ahead.is_some_and(is_far) || leaves_exactly()
    }
}

#[inline]
fn coarse() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    // The clock counts from the machine's start and its nanoseconds are below 10^9, so neither conversion loses
    // anything.
    Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
}

#[cfg(all(test, loom))]
mod models;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_gate_is_open_while_nothing_is_under_way_and_no_failure_is_known() {
        let gate = FastPathGate::new(super::super::links::scratch());
        let events = [
            (Event::Queue, Progress::Queued),
            (Event::Begin, Progress::Engine),
            (Event::Leave, Progress::CallerOwned),
            (Event::Reclaim, Progress::Engine),
            (Event::Next, Progress::Queued),
            (Event::Last, Progress::Idle),
            (Event::Borrow, Progress::Borrowed),
            (Event::Return, Progress::Idle),
            (Event::Defer, Progress::Deferred),
            (Event::Finish, Progress::Idle),
            (Event::Defer, Progress::Deferred),
            (Event::Adopt, Progress::Engine),
        ];
        for (event, state) in events {
            gate.on(event);
            assert!(gate.progress() == state && gate.is(state), "{event:?}");
            for failed in [true, false] {
                gate.set_failed(failed);
                assert_eq!(gate.is_open(), state == Progress::Idle && !failed, "{state:?}");
            }
        }
    }

    #[test]
    fn a_deadline_is_told_from_one_that_has_passed_however_near_it_is() {
        let clock = CoarseClock::new(Duration::from_secs(1));
        for within in [0, 1, 1000].map(Duration::from_millis) {
            for ahead in [60, 1000, 3_600_000].map(Duration::from_millis) {
                assert!(clock.leaves(Deadline::after(within + ahead), || within), "{ahead:?}");
            }
            for late in [0, 1, 49, 51, 1000].map(Duration::from_millis) {
                let deadline = Deadline::at(Instant::now().checked_sub(late).unwrap() + within);
                assert!(!clock.leaves(deadline, || within), "{late:?}");
            }
        }
        assert!(!CoarseClock::new(Duration::MAX).leaves(Deadline::after(Duration::MAX), || Duration::MAX));
    }
}
