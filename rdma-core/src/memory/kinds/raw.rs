//! Bytes at an address that the caller vouches for, alive as long as something of the caller's is.

#![expect(unsafe_code, reason = "holds an address for the owner of its bytes")]

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// An address, a length, and what keeps the bytes there.
///
/// # Invariants
///
/// `data..data + len` is readable, writable and initialised for as long as `keep` is alive.
pub(crate) struct Raw {
    data: NonNull<u8>,
    len: usize,
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the bytes are plain memory without thread affinity, and what keeps them is `Send` and `Sync`.
unsafe impl Send for Raw {}
// SAFETY: as above; `&Raw` gives an address and a length, which are immutable.
unsafe impl Sync for Raw {}

impl Raw {
    /// # Safety
    ///
    /// The range is readable, writable and initialised for as long as `keep` is alive, and `len` is at most
    /// [`isize::MAX`].
    pub(crate) unsafe fn new(data: NonNull<u8>, len: usize, keep: Arc<dyn Any + Send + Sync>) -> Self {
        // INVARIANT: by the caller's promise.
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
