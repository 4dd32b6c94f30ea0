//! [`AnonymousPages`]: private pages that one value owns.

#![expect(unsafe_code, reason = "maps and unmaps pages")]

use std::ptr::{NonNull, null_mut};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Private anonymous pages, unmapped on drop. Their owner may map other pages over them.
///
/// # Invariants
///
/// `base..base + len` is a mapping that only this value unmaps, or `len` is 0.
#[derive(Debug)]
pub(super) struct AnonymousPages {
    pub(super) base: NonNull<u8>,
    pub(super) len: usize,
}

impl AnonymousPages {
    /// Maps `len` bytes at an address that the kernel chooses.
    pub(super) fn map(len: usize, protection: ProtFlags) -> Result<Self, Errno> {
        // SAFETY: the kernel chooses an unused address for this new mapping, so nothing is replaced.
        let base = unsafe { mmap_anonymous(null_mut(), len, protection, MapFlags::PRIVATE) }?;
        // INVARIANT: mapped just now, and known to nobody else.
        Ok(Self { base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, len })
    }

    /// Unmaps the pages; a second call does nothing. After an error they are leaked, never freed twice. Nobody may use
    /// them any more.
    pub(super) fn unmap(&mut self) -> Result<(), Errno> {
        match std::mem::take(&mut self.len) {
            0 => Ok(()),
            // SAFETY: by the invariant only this value unmaps the pages, and its owner drops it when nobody uses them.
            len => unsafe { munmap(self.base.as_ptr().cast(), len) },
        }
    }
}

impl Drop for AnonymousPages {
    fn drop(&mut self) {
        let _ = self.unmap();
    }
}
