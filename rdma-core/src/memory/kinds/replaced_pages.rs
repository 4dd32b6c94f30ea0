//! Pages that processes of this host can share, in place of the caller's, at the same address.
//!
//! Piece by piece the bytes are copied to a memfd, which is then mapped over them; and at the end back to anonymous pages,
//! which are moved to where the bytes are. So at no moment are they in one place alone that is about to go, whatever fails;
//! and both copies of all of them are never there at once, which the memory might not be enough for.

#![expect(unsafe_code, reason = "maps other pages where the caller's are, and copies the bytes")]

mod vma;

use std::ffi::c_void;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap, mmap_anonymous, mremap_fixed};

use super::backing::{Backing, Denied};
use crate::error::RegisterError;
use crate::memory::copy::copy_shared;
use crate::memory::{Unshared, capacity, fork};

/// Bytes that are there twice for a moment; much more than it takes to map them, and a multiple of all sizes of pages.
const PIECE: usize = 16 << 20;

/// The first bytes of a range of the caller's are on shared pages, until they are [put back](Self::put_back). Where this is
/// dropped before, they stay there.
///
/// # Invariants
///
/// - `data..data + len` is one or more whole pages: a mapping of the first `len` bytes of the memfd, or of pages that have
///   taken their place since.
/// - The range is readable and writable, whatever its pages are, for as long as this value lives, and nobody accesses it
///   while they are put back.
#[derive(Debug)]
pub(super) struct ReplacedPages {
    data: NonNull<u8>,
    len: usize,
    backing: Backing,
    /// Before there was anything that a child could share. One that does has the same pages, and leaves the memfd alone, as
    /// this process does for its sake.
    checkpoint: fork::Checkpoint,
}

/// Moves pages from an address, so many bytes, to another one, whose are unmapped first.
type MovePages<'a> = &'a dyn Fn(*mut c_void, usize, *mut c_void) -> Result<*mut c_void, Errno>;

/// Pages could not be replaced, and those that were could not be put back, or all were.
#[derive(Debug)]
pub(super) struct ReplaceError {
    pub(super) why: Unshared,
    pub(super) left: Option<ReplacedPages>,
}

impl From<Unshared> for ReplaceError {
    fn from(why: Unshared) -> Self {
        Self { why, left: None }
    }
}

// SAFETY: the pages are plain memory without thread affinity, to which this gives no access.
unsafe impl Send for ReplacedPages {}
// SAFETY: as above; `&ReplacedPages` gives what is immutable.
unsafe impl Sync for ReplacedPages {}

impl ReplacedPages {
    /// Replaces the pages of `len` bytes from `data` on, if there are no other bytes on them and nothing is lost; else they
    /// are as they were, but for what is left in the error.
    ///
    /// # Safety
    ///
    /// - The range is readable, writable and initialised for as long as the result lives, `len` is at most [`isize::MAX`],
    ///   and what the range is mapped to is changed by nobody else.
    /// - Nobody else accesses it during this call, nor while the pages are put back.
    pub(super) unsafe fn replace(data: NonNull<u8>, len: usize) -> Result<Self, ReplaceError> {
        let (page, start) = (rustix::param::page_size(), data.as_ptr().addr());
        if !start.is_multiple_of(page) || !len.is_multiple_of(page) {
            return Err(Unshared::Unaligned { page }.into());
        }
        vma::check(start..start + len)?;
        if let Err(RegisterError::BeyondSystem { limit, .. }) = capacity::check(len as u64) {
            return Err(Unshared::BeyondSystem { limit }.into());
        }
        let backing = Backing::create(len as u64).map_err(Unshared::from)?;
        // SAFETY: the caller's promise; the range was looked at above.
        unsafe { Self::onto(backing, data, len, PIECE) }
    }

    /// In pieces of that many bytes.
    ///
    /// # Safety
    ///
    /// As for [`replace`](Self::replace), with whole pages alone, and pieces of such.
    unsafe fn onto(backing: Backing, data: NonNull<u8>, len: usize, piece: usize) -> Result<Self, ReplaceError> {
        // INVARIANT: no page so far.
        let mut replaced = Self { data, len: 0, backing, checkpoint: fork::Checkpoint::now() };
        while replaced.len < len {
            // SAFETY: the range goes on that far, and by the caller's promise nobody else accesses it.
            if let Err(denied) = unsafe { replaced.replace_next(piece.min(len - replaced.len)) } {
                let left = replaced.put_back().is_err().then_some(replaced);
                return Err(ReplaceError { why: denied.into(), left });
            }
        }
        Ok(replaced)
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
            mmap(target.as_ptr().cast(), count, protection, flags, &self.backing.memfd, offset)
        }
        .map_err(Denied::of("mmap"))?;
        self.len += count;
        Ok(())
    }

    /// What is handed to a peer.
    pub(super) fn backing(&self) -> &Backing {
        &self.backing
    }

    /// Moves the bytes to private anonymous pages at the same address. After an error fewer of the first ones may be on
    /// shared pages than before, and this can be called again.
    pub(super) fn put_back(&mut self) -> Result<(), Denied> {
        self.put_back_by(&|from, len, to| {
            // SAFETY: what is called here says so of its arguments.
            unsafe { mremap_fixed(from, len, len, MremapFlags::MAYMOVE, to) }
        })
    }

    /// By a call that moves so many bytes' pages to another address, where others are mapped.
    fn put_back_by(&mut self, move_to: MovePages<'_>) -> Result<(), Denied> {
        // Of pages that were one mapping before they are moved, one is made there.
        let mut stride = self.len;
        while self.len > 0 {
            match self.put_back_last(stride.min(self.len), move_to) {
                Err(_) if stride > PIECE => stride = PIECE,
                done => done?,
            }
        }
        Ok(())
    }

    fn put_back_last(&mut self, count: usize, move_to: MovePages<'_>) -> Result<(), Denied> {
        let mut fresh = AnonymousPages::map(count).map_err(Denied::of("mmap"))?;
        while fresh.len > 0 {
            let piece = (fresh.len - 1) % PIECE + 1;
            let begin = self.len - piece;
            // SAFETY: within the range, which nobody else accesses by the invariant; the last bytes of what is left of
            // the room are as many. They are the same bytes when their pages take the place of the others.
            unsafe {
                let target = self.data.add(begin);
                let source = fresh.base.add(fresh.len - piece);
                copy_shared(target.as_ptr(), source.as_ptr(), piece);
                if let Err(errno) = move_to(source.as_ptr().cast(), piece, target.as_ptr().cast()) {
                    if !self.fill_hole(target, source, piece) {
                        return Err(Denied { what: "mremap", errno });
                    }
                    // INVARIANT: a part of the room, which forgets it.
                    drop(AnonymousPages { base: source, len: piece });
                }
            }
            (fresh.len, self.len) = (fresh.len - piece, begin);
            if self.checkpoint.is_unforked() {
                self.backing.empty_from(begin as u64, piece as u64);
            }
        }
        Ok(())
    }

    /// Pages that were to be moved to the target, which the kernel unmaps first, were not: has the same bytes there whatever
    /// it is now, and tells whether they are on private pages.
    ///
    /// # Safety
    ///
    /// The target is of the range, or nothing since just now, and nobody else accesses it; the source has as many bytes.
    unsafe fn fill_hole(&self, target: NonNull<u8>, source: NonNull<u8>, len: usize) -> bool {
        let (at, offset) = (target.as_ptr().cast(), target.as_ptr().addr() - self.data.as_ptr().addr());
        let (both, only_there) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::FIXED_NOREPLACE);
        // SAFETY: maps what is not mapped, and copies to what is, by the caller's promise.
        unsafe {
            let private = mmap_anonymous(at, len, both, MapFlags::PRIVATE | only_there);
            let kept = matches!(private, Err(Errno::EXIST));
            if private.is_err() && !kept {
                // There is no memory for others: the memfd's are there still.
                let _ =
                    mmap(at, len, both, MapFlags::SHARED | only_there, &self.backing.memfd, offset as u64);
            }
            if !kept {
                copy_shared(source.as_ptr(), target.as_ptr(), len);
            }
            private.is_ok()
        }
    }
}

/// Private anonymous pages, unmapped on drop.
///
/// # Invariants
///
/// `base..base + len` is a mapping that this value alone knows of.
struct AnonymousPages {
    base: NonNull<u8>,
    len: usize,
}

impl AnonymousPages {
    fn map(len: usize) -> Result<Self, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::PRIVATE) }?;
        // INVARIANT: mapped just now.
        Ok(Self { base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, len })
    }
}

impl Drop for AnonymousPages {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: by the invariant nobody else has it. What cannot be unmapped is leaked.
            let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
