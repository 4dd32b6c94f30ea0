//! [`Pages`]: the patches of a memory (ranges whose pages were replaced), and the lock that keeps writers of
//! this process out during a replacement.
//!
//! A peer's process that is stopped in the middle of a write keeps the pages that it has mapped. To make its
//! late write invisible, the memory gets new pages with the same bytes at the same addresses. When the peer
//! goes on, it finishes into the old pages, which nobody reads.

#![expect(unsafe_code, reason = "maps pages over pages of a memory")]

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use super::Backing;
use super::backing::Denied;
use crate::memory::{WRITABLE, map_over};

/// Patches that a memory may have. Each one keeps a descriptor open, and needs two more mappings here and at
/// each peer, of which the kernel limits the number (vm.max_map_count).
const PATCHES_MAX: usize = 64;

/// A range of a memory whose pages were replaced.
#[derive(Debug, Clone)]
pub(crate) struct Patch {
    /// Number of the patch in its memory, from 1.
    pub(crate) version: u32,
    /// Offset of the first byte in the memory; a multiple of the page size, like `bytes`.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// The new pages; all of this memfd is mapped at the range.
    pub(crate) memfd: Arc<OwnedFd>,
}

/// The reason why pages cannot be replaced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Irreplaceable {
    #[error("something else in this process may be writing the memory")]
    Shared,
    #[error("pages of the memory were replaced {PATCHES_MAX} times")]
    TooOften,
    #[error("the peer does not name the pages that it accesses")]
    Unknown,
    #[error("the system has no memory, descriptor or mapping left for new pages: {0}")]
    System(#[source] io::Error),
}

/// The patches of one memory, and its writers.
#[derive(Debug)]
pub(crate) struct Pages {
    /// Length of the memory in bytes; whole pages.
    bytes: u64,
    /// Patches in the order of their versions.
    patches: Mutex<Vec<Patch>>,
    /// Held shared while this process writes the memory. Between the copy of a page and its replacement no
    /// byte may be written, because the new page would not have it.
    written: RwLock<()>,
    /// The owner of a part has had a slice that can be written, and may have one again.
    part_lent: AtomicBool,
    /// Somebody may write the memory without holding it.
    lent: AtomicBool,
}

impl Pages {
    /// Returns the state of a memory of `bytes` bytes, in whole pages, without patches.
    pub(super) fn new(bytes: u64) -> Self {
        Self {
            bytes,
            patches: Mutex::default(),
            written: RwLock::default(),
            part_lent: AtomicBool::new(false),
            lent: AtomicBool::new(false),
        }
    }

    /// Keeps pages from being replaced while the result is held. Required for every write of this process
    /// that does not hold the lock of the devices.
    ///
    /// Hold it for at most one piece of a copy: whoever replaces pages waits for it, and holds the lock of
    /// the devices.
    pub(crate) fn hold(&self) -> RwLockReadGuard<'_, ()> {
        // The lock is fair, so writers that come back at once do not starve a replacement that waits.
        self.written.read()
    }

    /// Records that the owner of a part may write it from now on without [holding](Self::hold) it, while other parts
    /// are a device's.
    ///
    /// Receives that their owner only reads are never lent, so that pages with several of them can be replaced.
    pub(crate) fn lend_part(&self) {
        if !self.part_lent.load(Ordering::Acquire) {
            // No replacement runs meanwhile, and each later one sees the mark.
            let _held = self.hold();
            self.part_lent.store(true, Ordering::Release);
        }
    }

    /// Records that somebody may write the memory at any moment without [holding](Self::hold) it.
    pub(in crate::memory) fn lend(&self) {
        self.lent.store(true, Ordering::Relaxed);
    }

    /// Returns the patches after version `after`, in order.
    pub(crate) fn patches(&self, after: u32) -> Vec<Patch> {
        let patches = self.patches.lock();
        patches.iter().skip(after as usize).cloned().collect()
    }

    /// Returns the version of the memory: the number of its patches.
    pub(crate) fn version(&self) -> u32 {
        self.patches.lock().len() as u32
    }

    /// Whether somebody may write the memory without holding it. `owned` says that nobody has a part of it.
    fn is_shared(&self, owned: bool) -> bool {
        self.lent.load(Ordering::Relaxed) || !owned && self.part_lent.load(Ordering::Acquire)
    }

    /// Checks whether `count` ranges may be replaced. `owned` says that nobody has a part of the memory.
    ///
    /// # Errors
    ///
    /// The reason why the ranges may not be replaced.
    pub(crate) fn check(&self, count: usize, owned: bool) -> Result<(), Irreplaceable> {
        if self.is_shared(owned) {
            return Err(Irreplaceable::Shared);
        }
        if self.version() as usize + count > PATCHES_MAX {
            return Err(Irreplaceable::TooOften);
        }
        Ok(())
    }

    /// Replaces ranges of whole pages that do not overlap. `owned` says that nobody has a part of the memory. After an
    /// error some may be replaced; [`patches`](Self::patches) returns which.
    ///
    /// # Safety
    ///
    /// The memory is mapped at `base`. Whatever writes it during the call [holds](Self::hold) it, or does not
    /// mind that its write is lost.
    pub(crate) unsafe fn replace(
        &self,
        base: NonNull<u8>,
        ranges: &[Range<u64>],
        owned: bool,
    ) -> Result<(), Irreplaceable> {
        let mut patches = self.patches.lock();
        // From here on new writers wait, and the running ones finish their piece.
        let _alone = self.written.write();
        if self.is_shared(owned) {
            return Err(Irreplaceable::Shared);
        }
        for Range { start, end } in ranges {
            if start >= end || *end > self.bytes {
                return Err(Irreplaceable::Unknown);
            }
            let (offset, bytes) = (*start, end - start);
            // SAFETY: the range was checked to be inside the memory, and the caller promises the rest; its
            // length fits `usize`, since it is mapped.
            let memfd = unsafe { replace_one(base.add(offset as usize), bytes as usize) };
            let memfd = memfd.map_err(Irreplaceable::System)?;
            let version = patches.len() as u32 + 1;
            patches.push(Patch { version, offset, bytes, memfd });
        }
        Ok(())
    }

    /// Returns the range of whole pages around `range`, in bytes of the memory.
    pub(crate) fn around(range: Range<u64>) -> Range<u64> {
        let page = rustix::param::page_size() as u64;
        range.start / page * page..range.end.next_multiple_of(page)
    }
}

/// Replaces one range and returns the memfd of its new pages.
///
/// # Safety
///
/// The promises of [`Pages::replace`], for `len` bytes at `at`, which are whole pages of the memory.
unsafe fn replace_one(at: NonNull<u8>, len: usize) -> io::Result<Arc<OwnedFd>> {
    let refused = |denied: Denied| io::Error::from(denied.errno);
    let backing = Backing::create(len as u64).map_err(refused)?;
    // SAFETY: the caller promises whole pages of the memory. They are replaced by pages with equal bytes; the kernel
    // does it in one step, so no access falls in between. The memory keeps its length, and is unmapped as a whole as
    // before.
    unsafe {
        backing.fill(at, len, 0).map_err(refused)?;
        map_over(at.as_ptr().cast(), len, WRITABLE, backing.memfd.as_fd())?;
    }
    Ok(backing.memfd)
}

#[cfg(test)]
mod tests;
