//! Pages that processes of this host can share, in place of the caller's, at the same address.
//!
//! Piece by piece the bytes are copied to a memfd, which is then mapped over them; and at the end back to anonymous pages,
//! which are moved to where the bytes are. So at no moment are they in one place alone that is about to go, whatever fails;
//! and both copies of all of them are never there at once, which the memory might not be enough for.

#![expect(unsafe_code, reason = "maps other pages where the caller's are, and copies the bytes")]

mod vma;

use std::ptr::NonNull;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags};

use super::backing::{Backing, Denied};
use crate::error::RegisterError;
use crate::memory::copy::copy_shared;
use crate::memory::{Unshared, capacity};

/// Bytes that are there twice for a moment; much more than it takes to map them, and a multiple of all sizes of pages.
const PIECE: usize = 16 << 20;

/// The first bytes of a range of the caller's are on shared pages, until this is dropped.
///
/// # Invariants
///
/// - `data..data + len` is one or more whole pages: a mapping of the first `len` bytes of the memfd, or of pages that have
///   taken their place since.
/// - The range is readable and writable, whatever its pages are, for as long as this value lives, and nobody accesses it
///   while the value is dropped.
#[derive(Debug)]
pub(super) struct InPlace {
    data: NonNull<u8>,
    len: usize,
    backing: Backing,
    /// A child that was forked from it has the same pages, and leaves the memfd alone.
    pid: u32,
}

// SAFETY: the pages are plain memory without thread affinity, to which this gives no access.
unsafe impl Send for InPlace {}
// SAFETY: as above; `&InPlace` gives what is immutable.
unsafe impl Sync for InPlace {}

impl InPlace {
    /// Replaces the pages of `len` bytes from `data` on, if there are no other bytes on them and nothing is lost; else they
    /// are as they were.
    ///
    /// # Safety
    ///
    /// - The range is readable, writable and initialised for as long as the result lives, `len` is at most [`isize::MAX`],
    ///   and what the range is mapped to is changed by nobody else.
    /// - Nobody else accesses it during this call, nor while the result is dropped.
    pub(super) unsafe fn replace(data: NonNull<u8>, len: usize) -> Result<Self, Unshared> {
        let (page, start) = (rustix::param::page_size(), data.as_ptr().addr());
        if !start.is_multiple_of(page) || !len.is_multiple_of(page) {
            return Err(Unshared::Unaligned { page });
        }
        vma::check(start..start + len)?;
        if let Err(RegisterError::BeyondSystem { limit, .. }) = capacity::check(len as u64) {
            return Err(Unshared::BeyondSystem { limit });
        }
        // SAFETY: the caller's promise; the range was looked at above.
        let replaced = Backing::create(len as u64).and_then(|to| unsafe { Self::onto(to, data, len, PIECE) });
        replaced.map_err(|Denied { what, errno }| Unshared::Denied { what, errno: errno.raw_os_error() })
    }

    /// In pieces of that many bytes.
    ///
    /// # Safety
    ///
    /// As for [`replace`](Self::replace), with whole pages alone, and pieces of such.
    unsafe fn onto(backing: Backing, data: NonNull<u8>, len: usize, piece: usize) -> Result<Self, Denied> {
        // INVARIANT: no page so far. On an error it is dropped, which puts back what it has.
        let mut placed = Self { data, len: 0, backing, pid: std::process::id() };
        while placed.len < len {
            // SAFETY: the range goes on that far, and by the caller's promise nobody else accesses it.
            unsafe { placed.replace_next(piece.min(len - placed.len)) }?;
        }
        Ok(placed)
    }

    /// Replaces the pages of the `count` bytes that follow.
    ///
    /// # Safety
    ///
    /// They are of the range that [`replace`](Self::replace) was given, and nobody else accesses them.
    unsafe fn replace_next(&mut self, count: usize) -> Result<(), Denied> {
        // SAFETY: of the range, which is readable, by the caller's promise.
        let (target, bytes) = unsafe {
            let target = self.data.add(self.len);
            (target, std::slice::from_raw_parts(target.as_ptr(), count))
        };
        let mut copied = 0;
        while copied < count {
            let at = (self.len + copied) as u64;
            match rustix::io::pwrite(&self.backing.memfd, &bytes[copied..], at) {
                Ok(0) => return Err(Denied { what: "copying to a memfd", errno: Errno::NOSPC }),
                Ok(written) => copied += written,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Denied { what: "copying to a memfd", errno }),
            }
        }
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: replaces pages of which the caller allows it by pages with the same bytes; nobody looks meanwhile.
        unsafe {
            let (protection, offset) = (ProtFlags::READ | ProtFlags::WRITE, self.len as u64);
            rustix::mm::mmap(target.as_ptr().cast(), count, protection, flags, &self.backing.memfd, offset)
        }
        .map_err(Denied::of("mmap"))?;
        self.len += count;
        Ok(())
    }

    /// What is handed to a peer.
    pub(super) fn backing(&self) -> &Backing {
        &self.backing
    }

    /// Moves the bytes to private anonymous pages at the same address.
    fn put_back(&mut self) -> Result<(), Errno> {
        // Of pages that were one mapping before they are moved, one is made there.
        let mut stride = self.len;
        while self.len > 0 {
            match self.put_back_last(stride.min(self.len)) {
                Err(_) if stride > PIECE => stride = PIECE,
                done => done?,
            }
        }
        Ok(())
    }

    fn put_back_last(&mut self, count: usize) -> Result<(), Errno> {
        let mut room = Room::map(count)?;
        while room.len > 0 {
            let piece = (room.len - 1) % PIECE + 1;
            let begin = self.len - piece;
            // SAFETY: within the range, which nobody else accesses by the invariant; the last bytes of what is left of
            // the room are as many. They are the same bytes when their pages take the place of the others.
            unsafe {
                let target = self.data.add(begin);
                let source = room.base.add(room.len - piece);
                copy_shared(target.as_ptr(), source.as_ptr(), piece);
                let (from, to) = (source.as_ptr().cast(), target.as_ptr().cast());
                rustix::mm::mremap_fixed(from, piece, piece, MremapFlags::MAYMOVE, to)?;
            }
            (room.len, self.len) = (room.len - piece, begin);
            if self.pid == std::process::id() {
                // Nobody has these pages any more; where this fails they take up memory a little longer.
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let _ = rustix::fs::fallocate(&self.backing.memfd, punch, begin as u64, piece as u64);
            }
        }
        Ok(())
    }
}

impl Drop for InPlace {
    fn drop(&mut self) {
        if let Err(error) = self.put_back() {
            tracing::error!(
                %error,
                bytes = self.len,
                "memory of the caller's keeps the shared pages that were put in its place, with all bytes: children that are forked share it"
            );
        }
    }
}

/// Private anonymous pages, unmapped on drop.
///
/// # Invariants
///
/// `base..base + len` is a mapping that this value alone knows of.
struct Room {
    base: NonNull<u8>,
    len: usize,
}

impl Room {
    fn map(len: usize) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice overlaps nothing.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::PRIVATE) }?;
        // INVARIANT: mapped just now.
        Ok(Self { base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, len })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: by the invariant nobody else has it. What cannot be unmapped is leaked.
            let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(test)]
mod tests;
