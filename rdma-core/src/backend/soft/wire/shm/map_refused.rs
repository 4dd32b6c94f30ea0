//! The error of mapping a descriptor that a peer sent.

use std::io;

use crate::error::limit_advice;

/// Why a peer's descriptor was not mapped. Each text reads after "pages that the peer handed over: ".
#[derive(Debug, thiserror::Error)]
pub(crate) enum MapRefused {
    /// A socket, a file on a disk, or huge pages. Any of these can lose a page after it was mapped, and the next
    /// access would end this process by SIGBUS.
    #[error("the descriptor is not a memfd of ordinary pages")]
    NotMemfd,
    #[error("the memfd is not sealed against shrinking and growing")]
    Unsealed,
    #[error("the memfd has {found} bytes instead of the {said} that the peer announced")]
    Size { said: u64, found: u64 },
    #[error("the memfd has no bytes")]
    Empty,
    #[error("the range is not made of whole pages within the memory")]
    Range,
    #[error("version {said} of the pages came after version {known}, out of order")]
    Version { said: u32, known: u32 },
    #[error("the memfd cannot be mapped: {0}; {mend}", mend = limit_advice(.0).unwrap_or("see mmap(2)"))]
    Map(#[source] io::Error),
}
