//! Acknowledgements that are held back for a moment, so that they leave with the next request of their queue pair.
//!
//! Such a request saves a system call at either end. But nobody knows whether one comes. So an acknowledgement is held
//! back only for a thread that polls, and only while the driver naps, because the driver then sends at its next look
//! what is still held. The thread itself sends it after some looks at the sockets, and before it sleeps.
//!
//! A completion of the peer waits for an acknowledgement that the request has asked for. So such a one is held back
//! only on a connection where the last one could have ridden, and for few looks. For any other, only room in the queue
//! may wait, and the errors of later requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Looks at the sockets that any other may wait for: enough for the messages of other peers that come before the next
/// request to this one.
pub(super) const LOOKS_UNASKED: u64 = 64;
/// The time of [`HeldAcks::due`] while nothing is held.
const NEVER: u64 = u64::MAX;

/// The clock of held acknowledgements, which counts looks at the sockets. The wire and the driver share it.
#[derive(Debug)]
pub(in super::super::super) struct HeldAcks {
    allowed: AtomicBool,
    looks: AtomicU64,
    /// The look before which the held acknowledgements must leave. Written under the fabric's lock.
    due: AtomicU64,
}

impl HeldAcks {
    /// Looks at the sockets that an acknowledgement may wait for, if the request has asked for it: enough for a thread
    /// that has taken a message and hears from a few other peers before it answers.
    pub(in super::super::super) const LOOKS_IF_ASKED: u64 = 8;

    pub(in super::super::super) fn new() -> Self {
        Self { allowed: AtomicBool::new(false), looks: AtomicU64::new(0), due: AtomicU64::new(NEVER) }
    }

    /// Allows that acknowledgements are held back, or ends that. Whoever ends it sends those that are held, under the
    /// lock.
    pub(in super::super::super) fn allow(&self, allowed: bool) {
        self.allowed.store(allowed, Ordering::Release);
    }

    /// Counts a look at the sockets. Returns whether acknowledgements are due before it.
    pub(in super::super::super) fn look(&self) -> bool {
        let look = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
        look >= self.due.load(Ordering::Relaxed)
    }

    /// Whether any acknowledgement is held.
    pub(in super::super::super) fn any(&self) -> bool {
        self.due.load(Ordering::Relaxed) != NEVER
    }

    /// The number of looks so far.
    pub(super) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    pub(super) fn allowed(&self) -> bool {
        self.allowed.load(Ordering::Acquire)
    }

    /// Notes that an acknowledgement is held for so many looks. Those that are held already may be due before.
    pub(super) fn note_held(&self, looks: u64) {
        self.due.fetch_min(self.looks() + looks, Ordering::Relaxed);
    }

    /// Notes that none is held any more.
    pub(super) fn note_sent(&self) {
        self.due.store(NEVER, Ordering::Relaxed);
    }
}
