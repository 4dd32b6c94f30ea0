//! The flag by which an owner asks to be woken at the next completion.
//!
//! The owner sets the flag and then looks for completions once more; the writer leaves a completion and then reads
//! the flag. Each has a full fence between its two steps (Dekker's algorithm), so that at least one of them sees the
//! other: otherwise an owner could sleep over a completion. A model of it runs under `cfg(loom)`.

use super::atomic::{AtomicU32, Ordering};
use super::full_fence::full_fence;

/// The flag, in shared memory. Zeroed memory is an owner that is awake.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Doorbell {
    armed: AtomicU32,
}

impl Doorbell {
    /// Sets the flag: the owner is about to sleep. It must look for completions after this call and before it sleeps.
    pub(super) fn arm(&self) {
        self.armed.store(1, Ordering::Relaxed);
        full_fence();
    }

    /// Whether the owner asked to be woken, and was not since.
    pub(super) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed) != 0
    }

    /// Returns whether the writer, which has just left a completion, must wake the owner. True once for each time
    /// that the owner armed.
    #[inline]
    pub(super) fn rings(&self) -> bool {
        full_fence();
        // The plain load comes first because the flag is nearly always 0, and a swap would take the cache line from
        // the owner at every completion. The swap makes sure that one wake-up is sent for each arming.
        self.armed.load(Ordering::Relaxed) != 0 && self.armed.swap(0, Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, loom))]
mod tests;
