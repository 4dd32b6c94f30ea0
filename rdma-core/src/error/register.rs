//! Registering memory.

use std::io;

/// Memory could not be allocated or registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// Nothing was asked for.
    #[error("a registration of zero bytes: ask for at least one")]
    ZeroLength,
    /// More than the address space or the device can hold.
    #[error("{len} bytes are more than the limit of {limit}: split the registration")]
    TooLong {
        /// What was asked for.
        len: u64,
        /// What there is.
        limit: u64,
    },
    /// More than this machine, or the cgroup that the process runs in, can ever hold.
    #[error("{len} bytes are more than {name}: {limit} bytes; ask for less, or raise that limit")]
    BeyondSystem {
        /// What was asked for.
        len: u64,
        /// What there is, in all.
        limit: u64,
        /// Which limit it is.
        name: String,
    },
    /// The access flags contradict each other.
    #[error("REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE: add it")]
    NeedsLocalWrite,
    /// The region is of another protection domain.
    #[error("the region was registered in another protection domain: export it there")]
    ForeignDomain,
    /// The system has no memory for it.
    #[error("{len} bytes of shared memory could not be had ({what}): {source}; {}",
        super::limit_advice(source).unwrap_or("ask for less, or raise the memory limit"))]
    Allocate {
        /// Bytes asked for.
        len: u64,
        /// What failed.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The device refused.
    #[error("ibv_reg_mr of {len} bytes failed: {source}; {explanation}")]
    Refused {
        /// Bytes asked for.
        len: u64,
        /// What the kernel said.
        source: io::Error,
        /// Which limit refused, by how much, and the mend.
        explanation: String,
    },
    /// A symbol that the call needs is not in the library found.
    #[error(transparent)]
    Library(#[from] super::LibraryUnavailable),
}
