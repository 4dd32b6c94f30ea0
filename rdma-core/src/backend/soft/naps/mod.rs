//! The hand-over of the sockets between the driver and threads that poll.
//!
//! The driver naps, and leaves the sockets to polling threads, unless one of these is about to sleep. Both sides first
//! announce themselves and then look for the other, so that the second one always sees the first, without a lock.
//! Sleeping and waking themselves are in [`driver`](super::driver).
//!
//! Both change `napping` in one read-modify-write. The second of two such operations on one atomic reads the value of
//! the first, and with acquire and release also everything that happened before it, so no stronger order is needed. A
//! model of this runs under `cfg(loom)`.

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The two counters that driver and polling threads announce themselves with.
#[derive(Debug)]
pub(super) struct Naps {
    /// Counts threads that were about to sleep until a completion.
    sleeps: AtomicU64,
    /// Whether the driver naps and leaves the sockets to others.
    napping: AtomicBool,
}

impl Naps {
    pub(super) fn new() -> Self {
        Self { sleeps: AtomicU64::new(0), napping: AtomicBool::new(false) }
    }

    /// Announces that the calling thread is about to sleep. `true` means that the driver naps: the caller must wake it.
    pub(super) fn announce_sleep(&self) -> bool {
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        self.napping.swap(false, Ordering::AcqRel)
    }

    /// How many threads have announced a sleep so far.
    pub(super) fn sleeps(&self) -> u64 {
        self.sleeps.load(Ordering::Relaxed)
    }

    /// Announces a nap of the driver. `false` means that a thread went to sleep since the driver counted `sleeps`: it
    /// must not nap then.
    pub(super) fn begin(&self, sleeps: u64) -> bool {
        self.napping.swap(true, Ordering::AcqRel);
        self.sleeps() == sleeps
    }

    /// Ends a nap.
    pub(super) fn end(&self) {
        self.napping.store(false, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod tests;
