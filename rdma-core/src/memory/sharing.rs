//! Whether processes of this host can share memory, and why not.

use std::io;

use crate::error::limit_advice;

/// Whether peers of this host can map some memory; if not, they reach it over TCP.
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
    /// They can: the library allocated it.
    Allocated,
    /// They can: pages that can be shared have [taken the place](crate::Memory::share_in_place) of the caller's.
    InPlace,
    /// They cannot: its pages are the caller's, as they were.
    Unshared(Unshared),
}

/// Why the pages of some memory are as the caller made them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unshared {
    /// They may not be replaced.
    #[error("its pages may not be replaced: allow it by Memory::share_in_place, or let the library allocate")]
    NotAllowed,
    /// They need not be replaced, so far.
    #[error("it has not been registered with a device that shares memory with processes of this host")]
    NotNeeded,
    /// It shares its first or last page with other memory.
    #[error("it does not begin and end where pages do: align it and its length to {page} bytes")]
    Unaligned {
        /// Bytes of a page.
        page: usize,
    },
    /// Some of it is not mapped, or is not to be both read and written, or is to be executed.
    #[error("some of it is not mapped for reading and writing alone: map it so")]
    Protected,
    /// Some of it is shared with other processes, or will be with children.
    #[error("some of it is shared memory already: use private anonymous memory, or let the library allocate")]
    Shared,
    /// Some of it is a file's, or a device's.
    #[error("some of it is a mapped file: use private anonymous memory, or let the library allocate")]
    File,
    /// Some of it has pages of another size, which cannot be replaced singly.
    #[error("some of it is of huge pages (MAP_HUGETLB): use ordinary ones, or let the library allocate")]
    HugePages,
    /// The kernel was told something of it, which would be lost.
    #[error("some of it {mark}, which new pages would not be: undo that, or let the library allocate")]
    Marked {
        /// What it is.
        mark: &'static str,
    },
    /// More than this machine, or the cgroup that the process runs in, can ever hold.
    #[error("its pages are more than all the memory that this process may have, {limit} bytes: use less")]
    BeyondSystem {
        /// What there is, in all.
        limit: u64,
    },
    /// The system has none of something left.
    #[error("{what} failed: {}; {}", io::Error::from_raw_os_error(*errno),
        limit_advice(&io::Error::from_raw_os_error(*errno)).unwrap_or("let the library allocate"))]
    Denied {
        /// What was asked for.
        what: &'static str,
        /// What the kernel said.
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
