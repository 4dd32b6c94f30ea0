//! Memory that two processes map: a sealed memfd, created here or received from a peer.
//!
//! This file maps, patches and unmaps. It leaves all access to the bytes to [`shared_slice`](super::shared_slice) and
//! to the copy kernels.

#![expect(unsafe_code, reason = "maps and unmaps memory")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::MapRefused;
use crate::memory::{file_limit_below, map_over};

/// Seals that every shared memfd must have. A peer that shrinks a file under a mapping ends this process by SIGBUS at
/// the next access, so a memfd without these seals is refused.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// Additional mappings per patch: replacing pages in the middle of a mapping splits it into three.
pub(crate) const MAPPINGS_PER_PATCH: usize = 2;
/// Magic number of tmpfs, where memfds of ordinary pages live. Huge-page memfds are on hugetlbfs instead.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Number of mappings of peers' memory in this process. A process may have about 65,000 mappings (vm.max_map_count),
/// and the peers decide how many memories they hand over; so the rendezvous must count and refuse.
pub(super) static PEER_MAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// The access of a mapping that may be written.
pub(crate) const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// A shared mapping of a memfd, zeroed when it is created, unmapped on drop.
///
/// A forked child does not have the mapping (MADV_DONTFORK), and may have something else in its place. So a segment is
/// kept by the fabric, which is never dropped, or in an [`OwnProcess`](crate::memory::OwnProcess), whose drop does
/// nothing in a child.
///
/// # Invariants
///
/// - `base..base + len` is one shared mapping that this value alone unmaps, readable, and writable if its
///   `protection` has WRITE; `base` is page-aligned and `len` is not 0.
/// - The memfd behind it is sealed against shrinking: every page can be touched for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Segment {
    base: NonNull<u8>,
    len: usize,
    protection: ProtFlags,
    /// The descriptor to send to peers; `None` for a segment that a peer sent, because it is never passed on.
    memfd: Option<OwnedFd>,
    /// Number of times that the owner replaced pages of this memory.
    version: AtomicU32,
}

// SAFETY: a mapping has no thread affinity, and only a raw pointer to it is handed out, so its users uphold the rules
// of access themselves.
unsafe impl Send for Segment {}
// SAFETY: `&Segment` gives out an address, a length and a descriptor, which never change, and an atomic version; so
// sharing it between threads does not race.
unsafe impl Sync for Segment {}

impl Segment {
    /// Creates a segment of at least `bytes` bytes, in whole pages, from a new memfd that the kernel shows as `name`.
    /// Forked children do not get the mapping.
    ///
    /// # Errors
    ///
    /// `bytes` is 0, above the file size limit (RLIMIT_FSIZE) or too large for the address space; or the kernel has
    /// no memory, descriptors or mappings left.
    pub(crate) fn create(name: &str, bytes: usize) -> io::Result<Self> {
        Self::create_for(name, bytes, READ_WRITE)
    }

    /// Creates a segment as [`create`](Self::create) does, and limits the mappings that peers may make of it to
    /// `peers`.
    ///
    /// # Errors
    ///
    /// Errors of [`create`](Self::create), and the kernel is older than Linux 5.1 (F_SEAL_FUTURE_WRITE).
    pub(crate) fn create_for(name: &str, bytes: usize, peers: ProtFlags) -> io::Result<Self> {
        let whole = bytes.checked_next_multiple_of(rustix::param::page_size());
        let Some(len) = whole.filter(|len| (1..=isize::MAX as usize).contains(len)) else {
            return Err(rustix::io::Errno::INVAL.into());
        };
        // ftruncate beyond RLIMIT_FSIZE does not only fail: the kernel also sends SIGXFSZ, whose default ends the
        // process. So the limit must be checked first.
        if let Some(most) = file_limit_below(len as u64) {
            let said =
                format!("{len} bytes of shared memory are above the limit of {most} (ulimit -f): raise it");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, said));
        }
        let memfd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&memfd, len as u64)?;
        rustix::fs::fcntl_add_seals(&memfd, SEALS)?;
        let base = map(memfd.as_fd(), len, READ_WRITE)?;
        // INVARIANT: mapped just now as one range, of a memfd that was sealed against shrinking before it was mapped.
        let segment =
            Self { base, len, protection: READ_WRITE, memfd: Some(memfd), version: AtomicU32::new(0) };
        // FUTURE_WRITE must come after this process's own writable mapping, which it leaves as it is, and forbids all
        // later ones. SEAL comes last of all, so that a peer cannot add seals of its own.
        let writable = peers.contains(ProtFlags::WRITE);
        let last = if writable { SealFlags::SEAL } else { SealFlags::FUTURE_WRITE | SealFlags::SEAL };
        if let Some(memfd) = &segment.memfd {
            rustix::fs::fcntl_add_seals(memfd, last)?;
        }
        Ok(segment)
    }

    /// Maps the whole of a memfd that a peer sent and says has `bytes` bytes. The descriptor is not kept, and forked
    /// children do not get the mapping.
    ///
    /// # Errors
    ///
    /// [`MapRefused`]: the descriptor is not a sealed memfd of that size, or the kernel has no mappings left.
    pub(crate) fn map(memfd: BorrowedFd<'_>, bytes: u64, protection: ProtFlags) -> Result<Self, MapRefused> {
        let len = check_memfd(memfd, bytes)?;
        let base = map(memfd, len, protection).map_err(MapRefused::Map)?;
        PEER_MAPPINGS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `base..base + len` was mapped just now by this call, so nothing else uses the range.
        unsafe { keep_out_of_dumps(base.as_ptr(), len) };
        // INVARIANT: mapped just now, of a memfd found sealed; the seals stay, because the kernel has no call that
        // removes one.
        let version = AtomicU32::new(0);
        Ok(Self { base, len, protection, memfd: None, version })
    }

    /// Maps all of the memfd `memfd`, sent by the owner, over the `bytes` bytes from `offset` on: pages that the
    /// owner replaced, for the `version`th time. A version that is mapped already is skipped, because every queue
    /// pair that shares the memory is told of each patch.
    ///
    /// An access at the same time finds the old pages or the new ones. The fabric's lock keeps two threads from
    /// patching one segment at a time.
    ///
    /// # Errors
    ///
    /// Errors of [`map`](Self::map); the range is not made of whole pages within the segment, or `version` is not the
    /// next one.
    pub(crate) fn patch(
        &self,
        memfd: BorrowedFd<'_>,
        version: u32,
        (offset, bytes): (u64, u64),
    ) -> Result<(), MapRefused> {
        let known = self.version();
        if version <= known {
            return Ok(());
        }
        if version != known + 1 {
            return Err(MapRefused::Version { said: version, known });
        }
        let len = check_memfd(memfd, bytes)?;
        let page = rustix::param::page_size() as u64;
        let within = offset.checked_add(bytes).is_some_and(|end| end <= self.len as u64);
        if !within || !offset.is_multiple_of(page) || !bytes.is_multiple_of(page) {
            return Err(MapRefused::Range);
        }
        // SAFETY: `offset + bytes` is at most `len` (checked above), so the address is within this mapping.
        let at = unsafe { self.base.add(offset as usize) }.as_ptr();
        // SAFETY: the range is within this value's own mapping, so nothing else is replaced. The new pages are sealed
        // as well, so they stay; and only raw pointers to the range exist, so no reference sees its bytes change.
        unsafe { map_over(at.cast(), len, self.protection, memfd) }
            .map_err(|error| MapRefused::Map(error.into()))?;
        // SAFETY: the range was mapped just now, and MADV_DONTFORK has no effect in this process, because it only tells
        // fork to leave the range out. A refusal leaves the range mapped, since the segment must not get a hole.
        unsafe { rustix::mm::madvise(at.cast(), len, Advice::LinuxDontFork) }
            .map_err(|error| MapRefused::Map(error.into()))?;
        PEER_MAPPINGS.fetch_add(MAPPINGS_PER_PATCH, Ordering::Relaxed);
        // SAFETY: `at..at + len` was mapped just now by the call above and lies in this value's mapping, so nothing
        // else uses it.
        unsafe { keep_out_of_dumps(at, len) };
        // Release, and only after the mmap: whoever reads this version with Acquire must find the new pages,
        // otherwise a request that needs them would land in the old ones.
        self.version.store(version, Ordering::Release);
        Ok(())
    }

    /// Returns the number of mappings of peers' memory in this process.
    pub(crate) fn peer_mappings() -> usize {
        PEER_MAPPINGS.load(Ordering::Relaxed)
    }

    /// Returns the number of times that pages of the segment were replaced.
    #[inline]
    pub(crate) fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the address of the first byte.
    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the mapping may be written.
    pub(crate) fn is_writable(&self) -> bool {
        self.protection.contains(ProtFlags::WRITE)
    }

    /// Returns a copy of the descriptor, to send to a peer, and the length in bytes.
    ///
    /// # Errors
    ///
    /// The process has no descriptors left, or a peer sent the segment.
    pub(crate) fn share(&self) -> io::Result<(OwnedFd, u64)> {
        let memfd = self.memfd().ok_or(io::ErrorKind::NotFound)?;
        Ok((memfd.try_clone_to_owned()?, self.len as u64))
    }

    /// Returns the descriptor; `None` for a segment that a peer sent.
    pub(crate) fn memfd(&self) -> Option<BorrowedFd<'_>> {
        self.memfd.as_ref().map(AsFd::as_fd)
    }
}

/// Checks a descriptor that a peer sent, and returns the length of its memfd. Only a sealed memfd of ordinary pages
/// is taken, because any other file can lose pages under the mapping (SIGBUS).
fn check_memfd(memfd: BorrowedFd<'_>, bytes: u64) -> Result<usize, MapRefused> {
    let seals = rustix::fs::fcntl_get_seals(memfd).map_err(|_| MapRefused::NotMemfd)?;
    if !seals.contains(SEALS) {
        return Err(MapRefused::Unsealed);
    }
    // Huge pages are refused although their memfds have seals: an access to one that the pool cannot supply raises
    // SIGBUS.
    let filesystem = rustix::fs::fstatfs(memfd).map_err(|_| MapRefused::NotMemfd)?;
    if filesystem.f_type as u64 != TMPFS_MAGIC {
        return Err(MapRefused::NotMemfd);
    }
    // The size is read after the seals were found: from then on it cannot change, in either direction.
    let found = rustix::fs::fstat(memfd).map_err(|error| MapRefused::Map(error.into()))?.st_size as u64;
    if found != bytes {
        return Err(MapRefused::Size { said: bytes, found });
    }
    let len = usize::try_from(bytes).map_err(|error| MapRefused::Map(io::Error::other(error)))?;
    if len == 0 { Err(MapRefused::Empty) } else { Ok(len) }
}

/// Maps a memfd at an address that the kernel chooses, as shared memory that a forked child does not get.
fn map(memfd: BorrowedFd<'_>, len: usize, protection: ProtFlags) -> io::Result<NonNull<u8>> {
    let (at, flags) = (std::ptr::null_mut(), MapFlags::SHARED);
    // SAFETY: without MAP_FIXED the kernel chooses a free range, so the mapping replaces nothing.
    let base = unsafe { rustix::mm::mmap(at, len, protection, flags, memfd, 0) }?;
    // SAFETY: MADV_DONTFORK on the range mapped just now has no effect in this process, because it only tells fork to
    // leave the range out.
    if let Err(error) = unsafe { rustix::mm::madvise(base, len, Advice::LinuxDontFork) } {
        // SAFETY: the range was mapped just now at an address that the kernel chose, and no pointer to it has left
        // this function, so nobody can use it.
        let _ = unsafe { rustix::mm::munmap(base, len) };
        return Err(error.into());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap returned address 0"))
}

/// Leaves a peer's memory out of core dumps, because this process must not write another's data to a file. A kernel
/// that refuses has it in dumps; the mapping works all the same.
///
/// # Safety
///
/// `at..at + len` is a mapping of this process.
unsafe fn keep_out_of_dumps(at: *mut u8, len: usize) {
    // SAFETY: the range is mapped, by this function's contract, and MADV_DONTDUMP changes nothing but what a core
    // dump has, so no access is affected.
    let _ = unsafe { rustix::mm::madvise(at.cast(), len, Advice::LinuxDontDump) };
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: by the invariant only this value unmaps the range, and whoever uses its address keeps an `Arc` of
        // this value, so nobody uses it now.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        if let Err(error) = unmapped {
            crate::log::warn!(%error, bytes = self.len, "munmap of a shared segment failed; the mapping is leaked");
        } else if self.memfd.is_none() {
            PEER_MAPPINGS.fetch_sub(1 + MAPPINGS_PER_PATCH * self.version() as usize, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
