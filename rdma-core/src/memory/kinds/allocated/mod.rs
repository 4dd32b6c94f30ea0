//! [`Allocated`]: memory of the library, a mapped memfd between two guard pages.

#![expect(unsafe_code, reason = "maps and unmaps memory")]

use std::io;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

use super::backing::{Backing, Denied};
use crate::error::RegisterError;
use crate::memory::{AnonymousPages, capacity, fork, map_shared};

/// Shared memory that is zeroed at first, page-aligned, and unmapped on drop.
///
/// A guard page on each side turns an access beyond the ends into a fault instead of corruption.
///
/// # Invariants
///
/// - In `reservation`, `data..data + len` is readable and writable, and the pages before and after are not accessible.
/// - `len` is at least 1 and `data` is page-aligned.
#[derive(Debug)]
pub(crate) struct Allocated {
    reservation: AnonymousPages,
    data: NonNull<u8>,
    len: usize,
    /// The memfd and its state, which a peer on this host can be handed to map the same pages.
    backing: Backing,
    /// Peers that have the pages mapped keep their bytes after the drop; set for windows.
    outlived: bool,
    /// Taken before the mapping was made, to learn whether a forked child shares the pages.
    checkpoint: fork::Checkpoint,
}

// SAFETY: the mapping is plain memory without thread affinity. It is handed out as raw pointers only, so
// their users uphold the rules of access.
unsafe impl Send for Allocated {}
// SAFETY: `&Allocated` gives an immutable address and length only, so sharing it adds no access.
unsafe impl Sync for Allocated {}

impl Allocated {
    /// Allocates `len` zeroed bytes.
    ///
    /// # Errors
    ///
    /// - [`RegisterError::ZeroLength`] and [`RegisterError::TooLong`] for impossible lengths.
    /// - [`RegisterError::BeyondSystem`] for more than this machine can ever hold.
    /// - [`RegisterError::Allocate`] when the kernel has no memory, descriptors or mappings left.
    pub(crate) fn allocate(len: usize) -> Result<Self, RegisterError> {
        if len == 0 {
            return Err(RegisterError::ZeroLength);
        }
        let page = rustix::param::page_size();
        let too_long =
            RegisterError::TooLong { len: len as u64, limit: (isize::MAX as usize - 3 * page) as u64 };
        if len > isize::MAX as usize - 3 * page {
            return Err(too_long);
        }
        capacity::check(len as u64)?;
        let body = len.next_multiple_of(page);
        let refused = |what, source| RegisterError::Allocate { len: len as u64, what, source };
        let backing =
            Backing::create(body as u64).map_err(|Denied { what, errno }| refused(what, errno.into()))?;
        Self::map(backing, body + 2 * page, page, len).map_err(|source| refused("mmap", source))
    }

    fn map(backing: Backing, span: usize, page: usize, len: usize) -> io::Result<Self> {
        // The reservation includes the guard pages. The memfd is mapped over its middle, so they stay
        // inaccessible.
        let (body, checkpoint) = (span - 2 * page, fork::Checkpoint::now());
        let reservation = AnonymousPages::map(span, ProtFlags::empty())?;
        // SAFETY: `span` is `body` plus two pages, so the result is inside the mapping that was just made.
        let data = unsafe { reservation.base.add(page) };
        // SAFETY: the pages are part of the reservation, and only this function knows the reservation so far.
        unsafe { map_shared(data, body, MapFlags::FIXED, &backing.memfd, 0) }?;
        // INVARIANT: one reservation, whose body is the memfd, with an inaccessible page on either side.
        Ok(Self { reservation, data, len, backing, outlived: false, checkpoint })
    }

    /// Returns the address of the first byte.
    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        self.data
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Leaves the bytes of the pages to peers that have them mapped when this value is dropped.
    pub(super) fn outlived(self) -> Self {
        let mut memory = self;
        memory.outlived = true;
        memory
    }

    /// Returns the memfd and its state, which a peer is handed.
    pub(crate) fn backing(&self) -> &Backing {
        &self.backing
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        let bytes = self.reservation.len;
        // Whoever gave the address to a device has deregistered it before this drop; `Registered` ensures it.
        if let Err(error) = self.reservation.unmap() {
            crate::log::warn!(%error, bytes, "munmap failed; the mapping is leaked");
        // A forked child shares the pages, and a window's peers keep them: their bytes must stay.
        } else if self.checkpoint.is_unforked() && !self.outlived {
            self.backing.empty();
        }
    }
}

#[cfg(test)]
mod tests;
