//! [`Backing`]: the sealed memfd behind memory that processes of this host can share.

#![expect(unsafe_code, reason = "has the kernel read memory that others may write")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;

use super::Pages;
use crate::error::UnshareError;
use crate::memory::{Unshared, capacity};

/// The shareable pages of a memory.
#[derive(Debug, Clone)]
pub(crate) struct Backing {
    /// Identifier of the memory: never 0, and unique in this process.
    pub(crate) id: u64,
    /// Length of the memfd, in bytes; all of it is the memory, up to the end of the last page.
    pub(crate) bytes: u64,
    pub(crate) memfd: Arc<OwnedFd>,
    /// The patches: pages that were replaced since, and are not the memfd's any more.
    pub(crate) pages: Arc<Pages>,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A system call that was refused, and its error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Denied {
    pub(super) what: &'static str,
    pub(super) errno: Errno,
}

impl From<Denied> for UnshareError {
    fn from(Denied { what, errno }: Denied) -> Self {
        Self { what, source: errno.into() }
    }
}

impl From<Denied> for Unshared {
    fn from(Denied { what, errno }: Denied) -> Self {
        Self::Denied { what, errno: errno.raw_os_error() }
    }
}

impl Denied {
    /// Returns a function for `map_err`.
    pub(super) fn of(what: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self { what, errno }
    }
}

impl Backing {
    /// Creates `bytes` zeroed bytes, in whole pages. The seals fix the length, because a peer that could
    /// truncate the file would make accesses of this process fault (SIGBUS).
    pub(super) fn create(bytes: u64) -> Result<Self, Denied> {
        if capacity::file_limit_below(bytes).is_some() {
            return Err(Denied { what: "ftruncate", errno: Errno::FBIG });
        }
        let memfd = rustix::fs::memfd_create("rdma-core", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(Denied::of("memfd_create"))?;
        rustix::fs::ftruncate(&memfd, bytes).map_err(Denied::of("ftruncate"))?;
        rustix::fs::fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(Denied::of("F_ADD_SEALS"))?;
        let pages = Arc::new(Pages::new(bytes));
        Ok(Self { id: NEXT.fetch_add(1, Ordering::Relaxed), bytes, memfd: Arc::new(memfd), pages })
    }

    /// Copies `len` bytes to `offset` of the memfd.
    ///
    /// # Safety
    ///
    /// The bytes are mapped and readable.
    pub(super) unsafe fn fill(&self, from: NonNull<u8>, len: usize, offset: usize) -> Result<(), Denied> {
        let denied = |errno| Denied { what: "copying to a memfd", errno };
        let mut done = 0;
        while done < len {
            // SAFETY: the rest of the range is readable. The kernel reads it, so a concurrent write is no data race.
            let written = unsafe {
                let (at, left) = (from.add(done).as_ptr().cast(), len - done);
                libc::pwrite(self.memfd.as_raw_fd(), at, left, (offset + done) as libc::off_t)
            };
            match written {
                0 => return Err(denied(Errno::NOSPC)),
                1.. => done += written as usize,
                _ => match Errno::from_io_error(&io::Error::last_os_error()) {
                    Some(Errno::INTR) => {}
                    error => return Err(denied(error.unwrap_or(Errno::IO))),
                },
            }
        }
        Ok(())
    }

    /// Frees the pages, although other processes still have them mapped or in an unread message. Without it a
    /// stopped peer would keep memory occupied. Call it only when nobody uses the bytes any more.
    pub(super) fn empty(&self) {
        let patches = self.pages.patches(0);
        let replaced = patches.iter().map(|patch| (&patch.memfd, patch.bytes));
        replaced.for_each(|(memfd, bytes)| punch(memfd, 0, bytes));
        self.empty_from(0, self.bytes);
    }

    /// Frees `bytes` bytes of pages from offset `begin` on; see [`empty`](Self::empty).
    pub(super) fn empty_from(&self, begin: u64, bytes: u64) {
        punch(&self.memfd, begin, bytes);
    }
}

fn punch(memfd: &OwnedFd, begin: u64, bytes: u64) {
    // An error is ignored, because the pages then go with the last process that has them.
    let _ =
        rustix::fs::fallocate(memfd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, begin, bytes);
}
