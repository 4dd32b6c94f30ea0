//! Memory that two processes map: a sealed memfd, made here or received from a peer.

#![expect(unsafe_code, reason = "maps and unmaps memory")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

use super::MapRefused;

/// What a memfd must never do again: a page that went away under a mapping would end this process.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// Of the filesystem that memfds of ordinary pages live on.
const TMPFS_MAGIC: u64 = 0x0102_1994;

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
        // A file that is made longer than this ends the process by a signal, and a memfd is one.
        if let Some(most) = getrlimit(Resource::Fsize).current.filter(|most| len as u64 > *most) {
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
            pid: std::process::id(),
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
        let len = examine(memfd, bytes)?;
        let base = map(memfd, len, protection).map_err(MapRefused::Map)?;
        // INVARIANT: mapped just now, and found sealed; seals are never taken off.
        let version = AtomicU32::new(0);
        Ok(Self { base, len, protection, memfd: None, version, pid: std::process::id() })
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
        let len = examine(memfd, bytes)?;
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
        self.version.store(version, Ordering::Release);
        Ok(())
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
fn examine(memfd: BorrowedFd<'_>, bytes: u64) -> Result<usize, MapRefused> {
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

impl Drop for Segment {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return;
        }
        // SAFETY: by the invariant this value alone owns the mapping, and who uses its address keeps this value.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        if let Err(error) = unmapped {
            tracing::warn!(%error, bytes = self.len, "munmap failed; the mapping is leaked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memfd(bytes: u64, seals: SealFlags) -> OwnedFd {
        let memfd =
            rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&memfd, bytes).unwrap();
        rustix::fs::fcntl_add_seals(&memfd, seals).unwrap();
        memfd
    }

    fn refusal(memfd: impl AsFd, bytes: u64, protection: Protection) -> String {
        Segment::map(memfd.as_fd(), bytes, protection).unwrap_err().to_string()
    }

    #[test]
    fn both_mappings_show_the_same_bytes() {
        let own = Segment::create("test", 5000).unwrap();
        assert_eq!(own.len() % rustix::param::page_size(), 0);
        assert!(own.len() >= 5000);
        let theirs = Segment::map(own.memfd().unwrap(), own.len() as u64, Protection::ReadWrite).unwrap();
        let reader = Segment::map(own.memfd().unwrap(), own.len() as u64, Protection::Read).unwrap();
        assert!(theirs.is_writable() && !reader.is_writable());
        assert!(theirs.memfd().is_none());
        let last = own.len() - 1;
        // SAFETY: within mappings that live, the first writable, and of this thread alone.
        let read = unsafe {
            theirs.as_ptr().add(last).write(7);
            [own.as_ptr().add(last).read(), reader.as_ptr().add(last).read(), own.as_ptr().read()]
        };
        assert_eq!(read, [7, 7, 0]);
    }

    #[test]
    fn only_what_cannot_go_away_is_mapped() {
        let page = rustix::param::page_size() as u64;
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(
            refusal(&socket, page, Protection::Read),
            "the descriptor is not a memfd of ordinary pages"
        );
        for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::GROW | SealFlags::SEAL] {
            assert_eq!(
                refusal(memfd(page, seals), page, Protection::Read),
                "the memfd is not sealed against shrinking and growing"
            );
        }
        assert_eq!(
            refusal(memfd(page, SEALS), 2 * page, Protection::Read),
            format!("the memfd has {page} bytes instead of the {} that the peer spoke of", 2 * page)
        );
        assert_eq!(refusal(memfd(0, SEALS), 0, Protection::Read), "the memfd has no bytes");
        let frozen = memfd(page, SEALS | SealFlags::WRITE);
        let refused = refusal(&frozen, page, Protection::ReadWrite);
        assert!(refused.starts_with("the memfd cannot be mapped: "), "{refused}");
        Segment::map(frozen.as_fd(), page, Protection::Read).unwrap();
    }

    #[test]
    fn what_peers_may_only_read_they_cannot_write() {
        let own = Segment::create_for("test", 1, Protection::Read).unwrap();
        let (memfd, len) = (own.memfd().unwrap(), own.len() as u64);
        assert!(matches!(Segment::map(memfd, len, Protection::ReadWrite), Err(MapRefused::Map(_))));
        assert!(rustix::io::write(memfd, &[1]).is_err());
        let theirs = Segment::map(memfd, len, Protection::Read).unwrap();
        // SAFETY: within mappings that live, the first writable, and of this thread alone.
        let read = unsafe {
            own.as_ptr().write(7);
            theirs.as_ptr().read()
        };
        assert_eq!(read, 7);
    }

    #[test]
    fn other_pages_are_mapped_in_order_and_once_with_the_same_rights() {
        let page = rustix::param::page_size() as u64;
        let own = Segment::create("test", 2 * page as usize).unwrap();
        let theirs = Segment::map(own.memfd().unwrap(), 2 * page, Protection::ReadWrite).unwrap();
        let fresh = memfd(page, SEALS);
        rustix::io::pwrite(&fresh, &[9], 0).unwrap();
        let patch = |version, range| theirs.patch(fresh.as_fd(), version, range);
        assert!(matches!(patch(2, (0, page)), Err(MapRefused::Version { said: 2, known: 0 })));
        assert!(matches!(patch(1, (2 * page, page)), Err(MapRefused::Range)));
        assert!(matches!(patch(1, (0, 0)), Err(MapRefused::Size { .. })));
        patch(1, (page, page)).unwrap();
        patch(1, (0, 7)).unwrap();
        // SAFETY: within mappings that live and are written by this thread alone.
        let read = unsafe {
            theirs.as_ptr().write(5);
            [
                own.as_ptr().read(),
                own.as_ptr().add(page as usize).read(),
                theirs.as_ptr().add(page as usize).read(),
            ]
        };
        assert_eq!((read, theirs.version()), ([5, 0, 9], 1));
        assert_forked_child_has_none(false, own, theirs);
    }

    #[test]
    fn a_made_one_is_sealed_and_never_empty() {
        let own = Segment::create("test", 1).unwrap();
        assert!(rustix::fs::ftruncate(own.memfd().unwrap(), 0).is_err());
        assert!(rustix::fs::ftruncate(own.memfd().unwrap(), 1 << 30).is_err());
        assert!(Segment::create("test", 0).is_err());
        assert!(Segment::create("test", usize::MAX).is_err());
    }

    #[test]
    fn a_forked_child_has_nothing_of_it_and_unmaps_nothing() {
        for own_is_looked_at in [false, true] {
            let own = Segment::create("test", 1).unwrap();
            let theirs = Segment::map(own.memfd().unwrap(), own.len() as u64, Protection::Read).unwrap();
            assert_forked_child_has_none(own_is_looked_at, own, theirs);
        }
    }

    fn assert_forked_child_has_none(own_is_looked_at: bool, own: Segment, theirs: Segment) {
        let looked_at = if own_is_looked_at { &own } else { &theirs };
        let (at, len) = (looked_at.as_ptr().as_ptr(), looked_at.len());
        let mut resident = vec![0u8; len.div_ceil(rustix::param::page_size())];
        // SAFETY: the child makes system calls, drops and ends.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", io::Error::last_os_error());
        if child == 0 {
            let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
            // SAFETY: takes a range only if it is free.
            let taken = unsafe { rustix::mm::mmap_anonymous(at.cast(), len, ProtFlags::READ, flags) };
            drop((own, theirs));
            // SAFETY: there is a byte for each page; -1 when one of them is not mapped.
            let kept = unsafe { libc::mincore(at.cast(), len, resident.as_mut_ptr()) } == 0;
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(i32::from(taken.is_err()) + 2 * i32::from(!kept)) };
        }
        let mut status = 0;
        // SAFETY: a child of this process, and a status of ours.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child has the peer's memory, or unmapped what took its place");
    }
}
