//! [`ReplacedPages`]: shareable pages in place of the caller's, at the same addresses.
//!
//! Replacing copies the bytes to a memfd, piece by piece, and maps the memfd over them. Putting back copies
//! them to new anonymous pages, and moves these to the caller's addresses. So the only copy of a byte is
//! never on pages that are about to go, whatever fails. And only one piece exists twice at a time, because
//! the memory might not suffice for a second copy of everything.

#![expect(unsafe_code, reason = "maps other pages where the caller's are, and copies the bytes")]

mod vma;

use std::ffi::c_void;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, mmap_anonymous, mremap_fixed};

use super::backing::{Backing, Denied};
use crate::error::RegisterError;
use crate::memory::copy::copy_shared;
use crate::memory::{AnonymousPages, Unshared, WRITABLE, capacity, fork, map_shared};

/// Bytes that exist twice for a moment: 16 MiB. Copying them takes much longer than the system calls that map
/// them, and the length is a multiple of all page sizes.
const PIECE: usize = 16 << 20;

/// A range of the caller's whose first bytes are on shareable pages, until they are [put
/// back](Self::put_back). Dropping this value leaves them there.
///
/// # Invariants
///
/// - `data..data + len` is whole pages, or nothing: a mapping of the first `len` bytes of the memfd, or of
///   patches that replaced them since.
/// - The range is readable and writable, whatever its pages are, as long as this value lives. Nobody accesses
///   it while pages are put back.
#[derive(Debug)]
pub(super) struct ReplacedPages {
    data: NonNull<u8>,
    len: usize,
    backing: Backing,
    /// Taken before the first page was shareable. A child that was forked since shares the pages and leaves
    /// the memfd alone; this process keeps the memfd's bytes for its sake.
    checkpoint: fork::Checkpoint,
}

/// Moves `len` bytes of pages from one address to another, whose pages the kernel unmaps first (`mremap`).
/// Tests pass one that fails.
type MovePages<'a> = &'a dyn Fn(*mut c_void, usize, *mut c_void) -> Result<*mut c_void, Errno>;

/// Pages could not be replaced. `left` is set if some that were already replaced could not be put back.
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

// SAFETY: the pages may move between threads, because they are plain memory and this value gives no access to them.
unsafe impl Send for ReplacedPages {}
// SAFETY: `&ReplacedPages` gives only what is immutable, so sharing it adds no access.
unsafe impl Sync for ReplacedPages {}

impl ReplacedPages {
    /// Replaces the pages of `len` bytes from `data` on, unless other bytes share them or a property of them
    /// would be lost. After an error the pages are as they were, except for those in the error.
    ///
    /// # Safety
    ///
    /// - The range is readable, writable and initialised as long as the result lives, `len` is at most
    ///   [`isize::MAX`], and nobody else changes what the range is mapped to.
    /// - Nobody else accesses the range during this call, nor while the pages are put back.
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
        // SAFETY: the caller promises the range, and alignment and mapping were checked above, so only whole
        // pages are replaced.
        unsafe { Self::onto(backing, data, len, PIECE) }
    }

    /// Replaces the pages in pieces of `piece` bytes.
    ///
    /// # Safety
    ///
    /// The promises of [`replace`](Self::replace), for whole pages only; `piece` is whole pages, too.
    unsafe fn onto(
        backing: Backing,
        data: NonNull<u8>,
        len: usize,
        piece: usize,
    ) -> Result<Self, ReplaceError> {
        // INVARIANT: no page is replaced so far, so the range is empty.
        let mut replaced = Self { data, len: 0, backing, checkpoint: fork::Checkpoint::now() };
        while replaced.len < len {
            // SAFETY: the range goes on that far, since `replaced.len < len`, and the caller promises that
            // nobody else accesses it.
            if let Err(denied) = unsafe { replaced.replace_next(piece.min(len - replaced.len)) } {
                let left = replaced.put_back().is_err().then_some(replaced);
                return Err(ReplaceError { why: denied.into(), left });
            }
        }
        Ok(replaced)
    }

    /// Replaces the pages of the next `count` bytes.
    ///
    /// # Safety
    ///
    /// The bytes belong to the range that [`replace`](Self::replace) was given, and nobody else accesses
    /// them.
    unsafe fn replace_next(&mut self, count: usize) -> Result<(), Denied> {
        // SAFETY: the caller promises that the bytes are readable and that nobody else accesses them, and only this
        // value maps other pages over them. The new pages have equal bytes, so nothing is lost.
        unsafe {
            let target = self.data.add(self.len);
            self.backing.fill(target, count, self.len)?;
            map_shared(target, count, MapFlags::FIXED, &self.backing.memfd, self.len as u64)
        }
        .map_err(Denied::of("mmap"))?;
        self.len += count;
        Ok(())
    }

    /// Returns the memfd and its state, which a peer is handed.
    pub(super) fn backing(&self) -> &Backing {
        &self.backing
    }

    /// Moves the bytes to private anonymous pages at the same addresses. After an error fewer bytes may be on
    /// shareable pages than before, and the call can be repeated.
    pub(super) fn put_back(&mut self) -> Result<(), Denied> {
        self.put_back_by(&|from, len, to| {
            // SAFETY: `put_back_last` passes only whole pages that it owns, and a target whose bytes it has
            // copied.
            unsafe { mremap_fixed(from, len, len, MremapFlags::MAYMOVE, to) }
        })
    }

    /// Puts the pages back by `move_to`.
    fn put_back_by(&mut self, move_to: MovePages<'_>) -> Result<(), Denied> {
        // Pages that are moved out of one mapping form one mapping again. So first all are tried at once, and
        // in pieces only where memory is short.
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
        let mut fresh = AnonymousPages::map(count, WRITABLE).map_err(Denied::of("mmap"))?;
        while fresh.len > 0 {
            let piece = (fresh.len - 1) % PIECE + 1;
            let begin = self.len - piece;
            // SAFETY: both parts are inside their ranges, and have `piece` bytes. By the invariant nobody
            // else accesses the target, so replacing its pages by pages with equal bytes loses nothing.
            unsafe {
                let target = self.data.add(begin);
                let source = fresh.base.add(fresh.len - piece);
                copy_shared(target.as_ptr(), source.as_ptr(), piece);
                if let Err(errno) = move_to(source.as_ptr().cast(), piece, target.as_ptr().cast()) {
                    if !self.fill_hole(target, source, piece) {
                        return Err(Denied { what: "mremap", errno });
                    }
                    // INVARIANT: a part of the mapping that `fresh` forgets below, so it is unmapped just
                    // once.
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

    /// Repairs a failed move. The kernel unmaps the target before it moves pages there, so there may be
    /// nothing at the target now. Puts pages with the same bytes there, and returns whether they are private.
    ///
    /// # Safety
    ///
    /// The target belongs to the range, or was unmapped just now, and nobody else accesses it. The source has
    /// `len` bytes.
    unsafe fn fill_hole(&self, target: NonNull<u8>, source: NonNull<u8>, len: usize) -> bool {
        let (offset, only_there) =
            (target.as_ptr().addr() - self.data.as_ptr().addr(), MapFlags::FIXED_NOREPLACE);
        // SAFETY: `FIXED_NOREPLACE` maps only where nothing is mapped, and the copy goes to what is mapped
        // then. The caller promises that nobody else accesses either range.
        unsafe {
            let private =
                mmap_anonymous(target.as_ptr().cast(), len, WRITABLE, MapFlags::PRIVATE | only_there);
            let kept = matches!(private, Err(Errno::EXIST));
            if private.is_err() && !kept {
                // Without memory for new pages the memfd is mapped again, because it still has all pages of
                // the range.
                let _ = map_shared(target, len, only_there, &self.backing.memfd, offset as u64);
            }
            if !kept {
                copy_shared(source.as_ptr(), target.as_ptr(), len);
            }
            private.is_ok()
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
