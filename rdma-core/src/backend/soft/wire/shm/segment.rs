//! Memory that two processes map: a sealed memfd, made here or received from a peer.

#![expect(unsafe_code, reason = "maps and unmaps memory")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::MapRefused;
use crate::memory::{file_limit_below, fork};

/// What a memfd must never do again: a page that went away under a mapping would end this process.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// How many more mappings there are when pages in the middle of one are replaced.
pub(crate) const MAPPINGS_PER_PATCH: usize = 2;
/// Of the filesystem that memfds of ordinary pages live on.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Mappings that this process has of what its peers have made. There are not many in a process, and who hands memory over
/// decides how many.
pub(super) static PEER_MAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// What a mapping is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protection {
    Read,
    ReadWrite,
}

/// Shared bytes, zeroed when they are made, unmapped on drop.
///
/// # Invariants
///
/// - `base..base + len` is one shared mapping that this value alone unmaps, readable, and writable unless
///   `protection` is `Read`; `base` is page-aligned and `len` is not 0.
/// - The memfd behind it is sealed against shrinking: every page can be touched for as long as this lives.
#[derive(Debug)]
pub(crate) struct Segment {
    base: NonNull<u8>,
    len: usize,
    protection: Protection,
    /// Of one that was made here, to be sent.
    memfd: Option<OwnedFd>,
    /// How often pages of it were replaced by others of its owner.
    version: AtomicU32,
    /// A child forked from that process does not have the mapping, and leaves alone what it has there.
    pid: u32,
}

// SAFETY: a mapping has no thread affinity; it is handed out as a raw pointer, whose users uphold the rules of
// access themselves.
unsafe impl Send for Segment {}
// SAFETY: as above; `&Segment` gives an address, a length and a descriptor, which are immutable.
unsafe impl Sync for Segment {}

impl Segment {
    /// At least `bytes` bytes, in whole pages, of a new memfd that the kernel shows as `name`. A child that is forked does not
    /// get the mapping.
    ///
    /// # Errors
    ///
    /// When `bytes` is 0 or more than an address space or a file may have, or the kernel has no memory, descriptors
    /// or mappings left.
    pub(crate) fn create(name: &str, bytes: usize) -> io::Result<Self> {
        Self::create_for(name, bytes, Protection::ReadWrite)
    }

    /// The same, of which `peers` may make mappings of that kind at most.
    ///
    /// # Errors
    ///
    /// As for [`create`](Self::create), and when the kernel is older than Linux 5.1.
    pub(crate) fn create_for(name: &str, bytes: usize, peers: Protection) -> io::Result<Self> {
        let whole = bytes.checked_next_multiple_of(rustix::param::page_size());
        let Some(len) = whole.filter(|len| (1..=isize::MAX as usize).contains(len)) else {
            return Err(rustix::io::Errno::INVAL.into());
        };
        if let Some(most) = file_limit_below(len as u64) {
            let said =
                format!("{len} bytes of shared memory are above the limit of {most} (ulimit -f): raise it");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, said));
        }
        let memfd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&memfd, len as u64)?;
        rustix::fs::fcntl_add_seals(&memfd, SEALS)?;
        let base = map(memfd.as_fd(), len, Protection::ReadWrite)?;
        // INVARIANT: mapped just now, of a memfd sealed just now.
        let segment = Self {
            base,
            len,
            protection: Protection::ReadWrite,
            memfd: Some(memfd),
            version: AtomicU32::new(0),
            pid: fork::pid(),
        };
        let last = match peers {
            Protection::Read => SealFlags::FUTURE_WRITE | SealFlags::SEAL,
            Protection::ReadWrite => SealFlags::SEAL,
        };
        if let Some(memfd) = &segment.memfd {
            rustix::fs::fcntl_add_seals(memfd, last)?;
        }
        Ok(segment)
    }

    /// The whole of a memfd that a peer made and says has `bytes` bytes. The descriptor is not kept; a child
    /// that is forked does not get the mapping.
    ///
    /// # Errors
    ///
    /// [`MapRefused`], when the descriptor is not what a peer may send, or the kernel has no mappings left.
    pub(crate) fn map(memfd: BorrowedFd<'_>, bytes: u64, protection: Protection) -> Result<Self, MapRefused> {
        let len = check_memfd(memfd, bytes)?;
        let base = map(memfd, len, protection).map_err(MapRefused::Map)?;
        PEER_MAPPINGS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: mapped just now, with that length.
        unsafe { keep_out_of_dumps(base.as_ptr(), len) };
        // INVARIANT: mapped just now, and found sealed; seals are never taken off.
        let version = AtomicU32::new(0);
        Ok(Self { base, len, protection, memfd: None, version, pid: fork::pid() })
    }

    /// Maps all of a memfd that a peer made over the `bytes` bytes from `offset` on: pages that it has replaced for the
    /// `version`th time. What was mapped already stays as it is: queue pairs that share a memory are each told.
    ///
    /// An access meanwhile finds the one pages or the others. Never called by two threads at a time.
    ///
    /// # Errors
    ///
    /// As for [`map`](Self::map), and when the range is not one of whole pages, or not the next.
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
        // SAFETY: not beyond the end.
        let at = unsafe { self.base.add(offset as usize) }.as_ptr();
        // SAFETY: replaces pages of this mapping by pages that stay as well; nobody holds a reference to their bytes.
        unsafe { map_at(at.cast(), MapFlags::FIXED, memfd, len, self.protection) }
            .map_err(MapRefused::Map)?;
        PEER_MAPPINGS.fetch_add(MAPPINGS_PER_PATCH, Ordering::Relaxed);
        // SAFETY: mapped just now, with that length.
        unsafe { keep_out_of_dumps(at, len) };
        self.version.store(version, Ordering::Release);
        Ok(())
    }

    /// How many mappings this process has of what its peers have made.
    pub(crate) fn peer_mappings() -> usize {
        PEER_MAPPINGS.load(Ordering::Relaxed)
    }

    /// How often pages of it were replaced.
    #[inline]
    pub(crate) fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// The first byte.
    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether it may be written.
    pub(crate) fn is_writable(&self) -> bool {
        self.protection == Protection::ReadWrite
    }

    /// What to send to a peer; `None` of a segment that was a peer's.
    pub(crate) fn memfd(&self) -> Option<BorrowedFd<'_>> {
        self.memfd.as_ref().map(AsFd::as_fd)
    }
}

/// The bytes of what a peer sent, when it is a memfd that can be mapped as a whole.
fn check_memfd(memfd: BorrowedFd<'_>, bytes: u64) -> Result<usize, MapRefused> {
    let seals = rustix::fs::fcntl_get_seals(memfd).map_err(|_| MapRefused::NotMemfd)?;
    if !seals.contains(SEALS) {
        return Err(MapRefused::Unsealed);
    }
    let filesystem = rustix::fs::fstatfs(memfd).map_err(|_| MapRefused::NotMemfd)?;
    if filesystem.f_type as u64 != TMPFS_MAGIC {
        return Err(MapRefused::NotMemfd);
    }
    let found = rustix::fs::fstat(memfd).map_err(|error| MapRefused::Map(error.into()))?.st_size as u64;
    if found != bytes {
        return Err(MapRefused::Size { said: bytes, found });
    }
    let len = usize::try_from(bytes).map_err(|error| MapRefused::Map(io::Error::other(error)))?;
    if len == 0 { Err(MapRefused::Empty) } else { Ok(len) }
}

fn map(memfd: BorrowedFd<'_>, len: usize, protection: Protection) -> io::Result<NonNull<u8>> {
    // SAFETY: a mapping at an address of the kernel's choice overlaps nothing.
    let base = unsafe { map_at(std::ptr::null_mut(), MapFlags::empty(), memfd, len, protection) }?;
    NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap returned address 0"))
}

/// A mapping that a child does not get.
///
/// # Safety
///
/// What is mapped there, if the flags say that it is to be there, may be replaced.
unsafe fn map_at(
    at: *mut libc::c_void,
    flags: MapFlags,
    memfd: BorrowedFd<'_>,
    len: usize,
    protection: Protection,
) -> io::Result<*mut libc::c_void> {
    let protection = match protection {
        Protection::Read => ProtFlags::READ,
        Protection::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
    };
    // SAFETY: the caller's promise.
    let base = unsafe { rustix::mm::mmap(at, len, protection, flags | MapFlags::SHARED, memfd, 0) }?;
    // SAFETY: only children that are forked later miss the range.
    if let Err(error) = unsafe { rustix::mm::madvise(base, len, Advice::LinuxDontFork) } {
        if at.is_null() {
            // SAFETY: mapped just now, and nobody has its address.
            let _ = unsafe { rustix::mm::munmap(base, len) };
        }
        return Err(error.into());
    }
    Ok(base)
}

/// What a peer has is not this process's to write to a file. Where that cannot be said, dumps have it.
///
/// # Safety
///
/// They are bytes of a mapping.
unsafe fn keep_out_of_dumps(at: *mut u8, len: usize) {
    // SAFETY: the caller's promise; it changes nothing else.
    let _ = unsafe { rustix::mm::madvise(at.cast(), len, Advice::LinuxDontDump) };
}

impl Drop for Segment {
    fn drop(&mut self) {
        if self.pid != fork::pid() {
            return;
        }
        // SAFETY: by the invariant this value alone owns the mapping, and who uses its address keeps this value.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        if let Err(error) = unmapped {
            tracing::warn!(%error, bytes = self.len, "munmap failed; the mapping is leaked");
        } else if self.memfd.is_none() {
            PEER_MAPPINGS.fetch_sub(1 + MAPPINGS_PER_PATCH * self.version() as usize, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
