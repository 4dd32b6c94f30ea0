//! The fast path's gate: what a caller's thread may know of a communicator without a lock, and the operation that it has begun so.
//!
//! While the gate is open nothing is under way and nothing has failed, as far as is known; and only who has the communicator begins
//! operations. So nobody else counts, and the next operation may be done in the thread of the caller.
//!
//! An operation that owns its memory may begin there and not be done: this rank has left its messages, and those of the others are not
//! there. It is deferred then. Whoever waits for it looks first, and may find it done. It becomes the engine's when that is in vain, when
//! another operation begins behind it, when its handle is given up, and in any case soon after the engine is driven next: so it goes on,
//! and ends at its deadline, though nobody waits.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rustix::time::{ClockId, clock_gettime};

use super::host::HostGroup;
use super::ring::{self, Scratch};
use crate::collective::execute::{Job, Patience};
use crate::engine::{Driver, Engine, HANDOVER_DELAY};

/// Between two times that operations which are done at once drive an engine that nobody else may drive.
const DRIVE_EVERY: Duration = Duration::from_millis(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct FastPathGate {
    open: AtomicBool,
    /// Operations begun.
    sequence: AtomicU64,
    /// Handles given out.
    handles: AtomicU64,
    /// What is under way is the engine's, and left to its caller for now.
    caller_owned: AtomicBool,
    /// It is neither under way for the engine, nor does it close the gate.
    pub(super) deferred: DeferredSlot,
}

impl FastPathGate {
    pub(super) fn new() -> Self {
        let (open, caller_owned) = (AtomicBool::default(), AtomicBool::default());
        let (sequence, handles) = (AtomicU64::default(), AtomicU64::default());
        Self { open, sequence, handles, caller_owned, deferred: DeferredSlot::new() }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    pub(super) fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::Release);
    }

    pub(super) fn is_caller_owned(&self) -> bool {
        self.caller_owned.load(Ordering::Acquire)
    }

    pub(super) fn set_caller_owned(&self, owned: bool) {
        self.caller_owned.store(owned, Ordering::Release);
    }

    #[inline]
    pub(super) fn sequence_if_open(&self) -> Option<u64> {
        // In this order: what was under way without the engine may be its own by then.
        (!self.deferred.is_occupied() && self.is_open()).then(|| self.sequence())
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Relaxed)
    }

    /// The number of another handle, for who has the communicator.
    pub(super) fn next_id(&self) -> u64 {
        let id = self.handles.load(Ordering::Relaxed);
        self.handles.store(id + 1, Ordering::Relaxed);
        id
    }

    /// An operation begins, or has been done at once.
    pub(super) fn count(&self) {
        self.sequence.store(self.sequence() + 1, Ordering::Relaxed);
    }
}

/// What an operation works with that needs nothing of the engine.
pub(crate) struct FastPath<'a> {
    pub(crate) host: &'a HostGroup,
    pub(crate) scratch: &'a mut Scratch,
    /// Its number.
    pub(crate) sequence: u64,
    pub(crate) gate: &'a FastPathGate,
    pub(crate) drives: EngineDrive<'a>,
}

/// What else there is on the engine goes on while operations are done at once, unless a [thread](Driver::Thread) sees to that.
pub(crate) struct EngineDrive<'a> {
    pub(super) engine: &'a Engine,
    /// When it was driven last.
    pub(super) driven: &'a mut Instant,
}

impl EngineDrive<'_> {
    /// EngineDrive it if that is due.
    #[inline]
    pub(crate) fn now_and_then(&mut self, now: impl FnOnce() -> Instant) {
        if self.engine.options().driver != Driver::Caller {
            return;
        }
        let now = now();
        if now.saturating_duration_since(*self.driven) >= DRIVE_EVERY {
            *self.driven = now;
            self.engine.try_drive();
        }
    }
}

impl FastPath<'_> {
    /// It is done, and has taken all that it needs.
    #[inline]
    pub(crate) fn done(self) {
        self.host.end_round();
        self.gate.count();
    }
}

/// The place of one such operation. Whoever holds its lock takes no other.
#[derive(Debug)]
pub(super) struct DeferredSlot {
    /// Cleared last: who sees that knows what has become of it.
    occupied: AtomicBool,
    place: Mutex<Deferred>,
}

/// See [`DeferredSlot`].
pub(super) struct Deferred {
    begun: Option<DeferredOp>,
    scratch: Box<Scratch>,
}

/// The operation.
pub(super) struct DeferredOp {
    pub(super) id: u64,
    pub(super) job: Box<Job>,
    pub(super) deadline: Deadline,
    pub(super) started: Instant,
}

impl DeferredSlot {
    pub(super) fn new() -> Self {
        let place = Deferred { begun: None, scratch: ring::scratch() };
        Self { occupied: AtomicBool::new(false), place: Mutex::new(place) }
    }

    pub(super) fn is_occupied(&self) -> bool {
        self.occupied.load(Ordering::Acquire)
    }

    /// Holds an operation that has begun, until it is looked at again.
    pub(super) fn hold(&self, begun: DeferredOp) {
        self.lock().begun = Some(begun);
        self.occupied.store(true, Ordering::Release);
    }

    /// Patience for the messages of operation `id`, `until` then if they do not come at once; its job when it is done.
    pub(super) fn end(&self, id: u64, host: &HostGroup, until: Option<Deadline>) -> Option<Box<Job>> {
        let mut place = self.lock();
        let Deferred { begun, scratch } = &mut *place;
        let is_done = |begun: &mut DeferredOp| {
            let looks = until.map_or(Patience::Once, |until| Patience::Until(until.min(begun.deadline)));
            begun.id == id && begun.job.try_finish(host, scratch, looks)
        };
        let done = begun.take_if(is_done)?;
        self.vacate();
        Some(done.job)
    }

    /// The operation, for the engine, which [says so](Self::vacate) once it has it.
    pub(super) fn take(&self) -> Option<DeferredOp> {
        self.lock().begun.take()
    }

    /// The same if it was left to its caller for long enough, and nobody looks at it now.
    pub(super) fn take_due(&self, now: Instant) -> Option<DeferredOp> {
        let mut place = self.place.try_lock().ok().filter(|_| self.is_occupied())?;
        place.begun.take_if(|begun| begun.due() <= now)
    }

    /// When it is [due](Self::take_due).
    pub(super) fn due(&self) -> Option<Instant> {
        if !self.is_occupied() {
            return None;
        }
        self.place.try_lock().ok()?.begun.as_ref().map(DeferredOp::due)
    }

    /// The operation is known elsewhere, or is done.
    pub(super) fn vacate(&self) {
        self.occupied.store(false, Ordering::Release);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Deferred> {
        // Nothing is half done in it.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
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

/// How far behind it is taken to be: more than a tick of any kernel. It is further behind where no processor of a virtual machine ran
/// for longer: an operation whose deadline has passed meanwhile then begins, and ends by that as one that was begun before.
const BEHIND: Duration = Duration::from_millis(50);

/// See the module. It is `CLOCK_MONOTONIC_COARSE` (`clock_gettime(2)`), which is as late as the kernel's last tick.
#[derive(Debug, Clone, Copy)]
pub(super) struct CoarseClock {
    /// What it said at first.
    coarse: Duration,
    /// What was at least as far ahead then as is asked for; without it nothing is.
    ahead: Option<Instant>,
}

impl CoarseClock {
    /// For who asks for `within` at most.
    pub(super) fn new(within: Duration) -> Self {
        let ahead = Instant::now().checked_add(BEHIND).and_then(|ahead| ahead.checked_add(within));
        Self { coarse: coarse(), ahead }
    }

    /// Whether `deadline` is more than `within` ahead; the exact clock is asked where that is not clear.
    #[inline]
    pub(super) fn leaves(&self, deadline: Deadline, within: impl FnOnce() -> Duration) -> bool {
        let passed = coarse().saturating_sub(self.coarse);
        let is_far = |ahead| deadline.instant().saturating_duration_since(ahead) > passed;
        let leaves_exactly =
            || Instant::now().checked_add(within()).is_some_and(|then| !deadline.expired_at(then));
        self.ahead.is_some_and(is_far) || leaves_exactly()
    }
}

#[inline]
fn coarse() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    // It has run since the machine began, and its parts are in their ranges.
    Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

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
