//! The slot in which a writer announces the bytes that it is about to touch, so that the owner can tell when a
//! revocation is complete.
//!
//! The writer announces a registration and then checks that it is current. The owner revokes a registration and then
//! checks whether it is announced. Each has a full fence between its two steps (Dekker's algorithm), so that at least
//! one of them sees the other: either the writer sees that it may not go on, or the owner sees that it must wait. A
//! writer holds the slot for one chunk at a time, so that the owner never waits for a whole message. Models of this
//! run under `cfg(loom)`.
//!
//! Serials make announcements unambiguous (no ABA): no serial is ever used twice on a device, so an announced serial
//! cannot mean a later registration of the same key.

use std::ops::Range;

use super::atomic::{AtomicU64, Ordering};
use super::full_fence::full_fence;

/// Serial of "no registration": an idle slot. Serials of registrations begin at 1.
pub(super) const NO_SERIAL: u64 = 0;
/// Announces that the writer completes a receive without touching memory. The slot must be held even then, because an
/// idle slot promises the owner that no further completion arrives.
pub(super) const NO_REGISTRATION: u64 = u64::MAX;

/// The accesses that an owner revokes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessScope {
    /// Accesses to the registration of that serial.
    Registration(u64),
    /// All accesses through this queue pair, including completions without memory.
    Anything,
}

/// The bytes that a writer announces. The writer may lie, so the owner checks them before it uses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) serial: u64,
    /// First byte, at the owner's address; `end` is one past the last.
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

/// A writer's announcement, in shared memory. Zeroed memory is an idle slot.
#[derive(Debug)]
#[repr(C)]
pub(super) struct WriterSlot {
    /// [`NO_SERIAL`], or the serial of the registration that is being touched.
    active: AtomicU64,
    /// The announced chunk, at the owner's addresses. Valid only together with `active`.
    begin: AtomicU64,
    end: AtomicU64,
}

impl WriterSlot {
    /// Announces `chunk` of the registration `serial`, and returns whether the writer may touch it because the
    /// registration `is_current`. The right lasts until [`leave`](Self::leave).
    #[inline]
    pub(super) fn enter(&self, serial: u64, chunk: Range<u64>, is_current: impl FnOnce() -> bool) -> bool {
        // These stores are Release, so that an owner that reads this chunk also sees the `leave` of the chunk before:
        // then `active_chunk` cannot combine the old serial with the new chunk.
        self.begin.store(chunk.start, Ordering::Release);
        self.end.store(chunk.end, Ordering::Release);
        self.active.store(serial, Ordering::Release);
        // The announcement must be visible before the registration is checked. Release is not enough: a processor may
        // still load `is_current` before its store of `active` leaves the store buffer, and then both sides would
        // miss each other.
        full_fence();
        let may = is_current();
        if !may {
            self.leave();
        }
        may
    }

    /// Announces that the writer touches nothing any more. Release, so that an owner that sees the idle slot also
    /// sees every byte and completion that was stored before.
    #[inline]
    pub(super) fn leave(&self) {
        self.active.store(NO_SERIAL, Ordering::Release);
    }

    /// Returns the chunk that the writer announces, if any. For the owner, after it has revoked a right and called
    /// [`fence_after_revoke`]. A writer whose chunk this does not return has left it, or [`enter`](Self::enter)
    /// turned it away.
    pub(super) fn active_chunk(&self) -> Option<Chunk> {
        let serial = self.active.load(Ordering::Acquire);
        let (begin, end) = (self.begin.load(Ordering::Acquire), self.end.load(Ordering::Acquire));
        // The writer went on if `active` has changed; the chunk may then belong to another registration. A writer
        // that went on touches nothing revoked, so `None` is right.
        let still = self.active.load(Ordering::Relaxed) == serial;
        (serial != NO_SERIAL && still).then_some(Chunk { serial, begin, end })
    }

    /// Whether the writer announces one of those accesses. For the owner, after it has revoked them and called
    /// [`fence_after_revoke`].
    pub(super) fn touches(&self, what: AccessScope) -> bool {
        let active = self.active.load(Ordering::Acquire);
        match what {
            AccessScope::Registration(serial) => active == serial,
            AccessScope::Anything => active != NO_SERIAL,
        }
    }
}

/// Orders an owner's revocation (a store before this call) before its reads of the slots (after this call). The
/// counterpart of the fence in [`WriterSlot::enter`]; without either, both sides can miss each other.
#[inline]
pub(super) fn fence_after_revoke() {
    full_fence();
}

#[cfg(all(test, loom))]
mod tests;
