//! [`Raw`]: bytes at an address that the caller vouches for.

#![expect(unsafe_code, reason = "holds an address for the owner of its bytes")]

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// An address, a length, and the owner that keeps the bytes there.
///
/// # Invariants
///
/// `data..data + len` is readable, writable and initialised as long as `keep` is alive.
pub(crate) struct Raw {
    data: NonNull<u8>,
    len: usize,
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the bytes are plain memory without thread affinity, and `keep` is `Send` and `Sync`, so any thread
// may drop it.
unsafe impl Send for Raw {}
// SAFETY: `&Raw` gives an immutable address and length only, so sharing it adds no access.
unsafe impl Sync for Raw {}

impl Raw {
    /// # Safety
    ///
    /// The range is readable, writable and initialised as long as `keep` is alive, and `len` is at most
    /// [`isize::MAX`].
    pub(crate) unsafe fn new(data: NonNull<u8>, len: usize, keep: Arc<dyn Any + Send + Sync>) -> Self {
        // INVARIANT: the caller promised it.
        Self { data, len, _keep: keep }
    }

    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        self.data
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Raw").field("data", &self.data).field("len", &self.len).finish_non_exhaustive()
    }
}
