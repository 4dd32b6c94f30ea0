//! The pages behind memory that processes of this host can share: a sealed memfd.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;

use super::Pages;
use crate::error::UnshareError;
use crate::memory::{Unshared, capacity};

/// Pages that processes of this host can share.
#[derive(Debug, Clone)]
pub(crate) struct Backing {
    /// Never that of other memory of this process, and not 0.
    pub(crate) id: u64,
    /// Of the memfd, all of which is the memory, up to the end of its last page.
    pub(crate) bytes: u64,
    pub(crate) memfd: Arc<OwnedFd>,
    /// Of which some may not be the memfd's any more.
    pub(crate) pages: Arc<Pages>,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

/// What the system refused, and how.
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
    /// For `map_err`.
    pub(super) fn of(what: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self { what, errno }
    }
}

impl Backing {
    /// `bytes` zeroed bytes, in whole pages, which become neither fewer nor more.
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

    /// Takes the pages from whoever has them: a neighbour that is stopped has them mapped, or in a message that it has not
    /// read, and they would take up memory for as long. To be said when nobody uses their bytes any more.
    pub(super) fn empty(&self) {
        let patches = self.pages.patches(0);
        let replaced = patches.iter().map(|patch| (&patch.memfd, patch.bytes));
        replaced.for_each(|(memfd, bytes)| punch(memfd, 0, bytes));
        self.empty_from(0, self.bytes);
    }

    /// The same of so many bytes of the first pages alone.
    pub(super) fn empty_from(&self, begin: u64, bytes: u64) {
        punch(&self.memfd, begin, bytes);
    }
}

fn punch(memfd: &OwnedFd, begin: u64, bytes: u64) {
    // Where this fails the pages go with the last that has them.
    let _ =
        rustix::fs::fallocate(memfd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, begin, bytes);
}
