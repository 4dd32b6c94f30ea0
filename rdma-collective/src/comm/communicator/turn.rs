//! What the thread of a caller may know of a communicator without a lock: whether the next operation is its, and its number.
//!
//! Only who has the communicator begins operations. While the turn is open none is under way and nothing has failed as far as is
//! known, so that nobody else counts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{HostGroup, Scratch};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Turn {
    open: AtomicBool,
    /// Operations begun.
    sequence: AtomicU64,
}

impl Turn {
    pub(super) fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::Release);
    }

    pub(super) fn sequence_if_open(&self) -> Option<u64> {
        self.open.load(Ordering::Acquire).then(|| self.sequence())
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Relaxed)
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
    pub(super) turn: &'a Turn,
}

impl AtOnce<'_> {
    /// It is done, and has taken all that was left for it.
    pub(crate) fn done(self) {
        self.host.end_round();
        self.turn.count();
    }
}
