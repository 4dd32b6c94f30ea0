//! What the thread of a caller may know of a communicator without a lock: whether the next operation is its, and its number.
//!
//! Only who has the communicator begins operations. While the turn is open none is under way and nothing has failed as far as is
//! known, so that nobody else counts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Apart, HostGroup, Scratch};
use crate::engine::{Driver, Engine};

/// Between two times that operations which are done at once drive an engine that nobody else may drive.
const DRIVE_EVERY: Duration = Duration::from_millis(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Turn {
    open: AtomicBool,
    /// Operations begun.
    sequence: AtomicU64,
    /// Handles given out.
    handles: AtomicU64,
    /// What is under way is the engine's, and left to its caller for now.
    left: AtomicBool,
    /// It is neither under way for the engine, nor does it close the turn.
    pub(super) apart: Apart,
}

impl Turn {
    pub(super) fn new() -> Self {
        let (open, left) = (AtomicBool::default(), AtomicBool::default());
        let (sequence, handles) = (AtomicU64::default(), AtomicU64::default());
        Self { open, sequence, handles, left, apart: Apart::new() }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    pub(super) fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::Release);
    }

    pub(super) fn is_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    pub(super) fn set_left(&self, left: bool) {
        self.left.store(left, Ordering::Release);
    }

    #[inline]
    pub(super) fn sequence_if_open(&self) -> Option<u64> {
        // In this order: what was under way without the engine may be its own by then.
        (!self.apart.is_occupied() && self.is_open()).then(|| self.sequence())
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
pub(crate) struct AtOnce<'a> {
    pub(crate) host: &'a HostGroup,
    pub(crate) scratch: &'a mut Scratch,
    /// Its number.
    pub(crate) sequence: u64,
    pub(crate) turn: &'a Turn,
    pub(crate) drives: Drives<'a>,
}

/// What else there is on the engine goes on while operations are done at once, unless a [thread](Driver::Thread) sees to that.
pub(crate) struct Drives<'a> {
    pub(super) engine: &'a Engine,
    /// When it was driven last.
    pub(super) driven: &'a mut Instant,
}

impl Drives<'_> {
    /// Drives it if that is due.
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

impl AtOnce<'_> {
    /// It is done, and has taken all that it needs.
    #[inline]
    pub(crate) fn done(self) {
        self.host.end_round();
        self.turn.count();
    }
}
