//! Why what a peer sent is not mapped.

use std::io;

use crate::error::limit_advice;

/// Why a peer's descriptor was not mapped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MapRefused {
    /// A socket, a file on a disk, or huge pages, which may be missing when they are touched.
    #[error("the descriptor is not a memfd of ordinary pages")]
    NotMemfd,
    #[error("the memfd is not sealed against shrinking and growing")]
    Unsealed,
    #[error("the memfd has {found} bytes instead of the {said} that the peer spoke of")]
    Size { said: u64, found: u64 },
    #[error("the memfd has no bytes")]
    Empty,
    #[error("they are not whole pages of the memory")]
    Range,
    #[error("they are the {said}. that were replaced, after {known}")]
    Version { said: u32, known: u32 },
    #[error("the memfd cannot be mapped: {0}; {mend}", mend = limit_advice(.0).unwrap_or("see mmap(2)"))]
    Map(#[source] io::Error),
}
