//! [`Sharing`]: whether processes of this host can share some memory, and why not.

use std::io;

use crate::error::limit_advice;

/// Whether peers of this host can map some memory. If not, they reach it over TCP.
///
/// ```
/// use rdma_core::{Memory, Sharing, Unshared};
/// assert_eq!(Memory::allocate(100)?.sharing(), Sharing::Allocated);
/// assert_eq!(Memory::adopt(vec![0; 100]).sharing(), Sharing::Unshared(Unshared::NotAllowed));
/// # Ok::<(), rdma_core::error::RegisterError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sharing {
    /// Peers can map it: the library allocated the memory.
    Allocated,
    /// Peers can map it: shareable pages [replaced](crate::Memory::share_in_place) the caller's pages, at the
    /// same addresses.
    InPlace,
    /// Peers cannot map it: the pages are the caller's own.
    Unshared(Unshared),
}

/// The reason why the pages of some memory are still the caller's own.
///
/// [`Sharing`](crate::memory::Sharing) has it.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unshared {
    /// The caller did not allow to replace the pages.
    #[error(
        "the caller's pages may not be replaced: call Memory::share_in_place, or let the library allocate"
    )]
    NotAllowed,
    /// No device has needed shared pages so far.
    #[error(
        "the memory has not been registered with a device that shares memory with processes of this host"
    )]
    NotNeeded,
    /// The memory shares its first or last page with other memory.
    #[error("the memory does not begin and end at page boundaries: align address and length to {page} bytes")]
    Unaligned {
        /// Page size in bytes.
        page: usize,
    },
    /// A part is not mapped, is not both readable and writable, or is executable.
    #[error("a part is not mapped for reading and writing only: map all of it with these two rights")]
    Protected,
    /// A part is shared with other processes, or will be with children.
    #[error("a part is shared memory already: use private anonymous memory, or let the library allocate")]
    Shared,
    /// A part is mapped from a file or a device.
    #[error("a part is a mapped file: use private anonymous memory, or let the library allocate")]
    File,
    /// A part has huge pages (`MAP_HUGETLB`), which cannot be replaced one by one.
    #[error("a part has huge pages (MAP_HUGETLB): use ordinary pages, or let the library allocate")]
    HugePages,
    /// The kernel keeps a property of a part that replaced pages would lose.
    #[error("a part {mark}, which new pages would lose: undo that, or let the library allocate")]
    Marked {
        /// The property.
        mark: &'static str,
    },
    /// The memory is larger than all that this machine, or the cgroup of the process, can ever hold.
    #[error("the memory is larger than all that this process may have, {limit} bytes: use less")]
    BeyondSystem {
        /// Bytes that the limit allows in all.
        limit: u64,
    },
    /// The system has run out of some resource.
    #[error("{what} failed: {}; {}", io::Error::from_raw_os_error(*errno),
        limit_advice(&io::Error::from_raw_os_error(*errno)).unwrap_or("let the library allocate"))]
    Denied {
        /// The system call that failed.
        what: &'static str,
        /// The kernel's error number.
        errno: i32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_named_with_what_ran_into_it() {
        let denied = |what, errno| Unshared::Denied { what, errno }.to_string();
        let text = denied("memfd_create", libc::EMFILE);
        let said = "memfd_create failed: Too many open files (os error 24); raise the limit on open files (ulimit -n)";
        assert_eq!(text, said);
        assert!(denied("mmap", libc::EAGAIN).contains("ulimit -l"));
        assert!(denied("mmap", libc::ENOMEM).contains("vm.max_map_count"));
    }
}
