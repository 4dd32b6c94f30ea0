//! [`RegisterError`]: allocating and registering memory.

use std::io;

/// Memory could not be allocated or registered.
///
/// Raised by [`ProtectionDomain::register`](crate::ProtectionDomain::register) and by its allocating sisters.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// Zero bytes were requested.
    #[error("a registration of zero bytes: ask for at least one")]
    ZeroLength,
    /// The length exceeds the address space or the limit of the device.
    #[error("{len} bytes are more than the limit of {limit}: split the registration")]
    TooLong {
        /// Requested bytes.
        len: u64,
        /// The largest length that is allowed.
        limit: u64,
    },
    /// The length exceeds all the memory that this machine, or the cgroup of the process, can ever hold.
    /// Touching such memory would end the process, so it is refused early.
    #[error("{len} bytes are more than {name}: {limit} bytes; ask for less, or raise that limit")]
    BeyondSystem {
        /// Requested bytes.
        len: u64,
        /// Bytes that the limit allows in all.
        limit: u64,
        /// Name of the limit.
        name: String,
    },
    /// `REMOTE_WRITE` or `REMOTE_ATOMIC` was requested without `LOCAL_WRITE`.
    #[error("REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE: add it")]
    NeedsLocalWrite,
    /// The access has bits that [`Access`](crate::Access) does not declare. A driver might know them, and the
    /// memory would not be what this library takes it for.
    #[error("the access bits {bits:#x} have no name here: build the access from the constants of Access")]
    UndeclaredAccess {
        /// The bits without a name.
        bits: u32,
    },
    /// The region was registered in another protection domain.
    #[error("the region was registered in another protection domain: export it there")]
    ForeignDomain,
    /// The range to export is reversed, or reaches beyond the region.
    #[error(transparent)]
    Range(#[from] super::RangeError),
    /// A key of several ranges was asked of a device of libibverbs, whose keys have one range each.
    #[error(
        "a key of this device reaches one range: export each range by itself, or use the software device"
    )]
    SeveralRanges,
    /// Other handles to the memory exist, or parts of it have several owners, so that a request may just be using it.
    #[error("the memory is in use: register it in further domains before it is cloned, attached or split")]
    InUse,
    /// The system has no memory, descriptors or mappings left.
    #[error("{len} bytes of shared memory could not be allocated ({what}): {source}; {}",
        super::limit_advice(source).unwrap_or("ask for less, or raise the memory limit"))]
    Allocate {
        /// Requested bytes.
        len: u64,
        /// The system call that failed.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The device refused the registration.
    #[error("ibv_reg_mr of {len} bytes failed: {source}; {explanation}")]
    Refused {
        /// Requested bytes.
        len: u64,
        /// The kernel's error.
        source: io::Error,
        /// The limit that refused, by how much, and how to raise it; see [`pinning`](crate::memory::pinning).
        explanation: String,
    },
    /// The installed libibverbs lacks a symbol that the call needs.
    #[error(transparent)]
    Library(#[from] super::LibraryUnavailable),
    /// This process was forked from the one that made the object.
    #[error(transparent)]
    Forked(#[from] super::Forked),
}

impl RegisterError {
    /// The name of the variant as the value of a label.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::ZeroLength => "zero_length",
            Self::TooLong { .. } => "too_long",
            Self::BeyondSystem { .. } => "beyond_system",
            Self::NeedsLocalWrite => "needs_local_write",
            Self::UndeclaredAccess { .. } => "undeclared_access",
            Self::ForeignDomain => "foreign_domain",
            Self::Range(_) => "range",
            Self::SeveralRanges => "several_ranges",
            Self::InUse => "in_use",
            Self::Allocate { .. } => "allocate",
            Self::Refused { .. } => "refused",
            Self::Library(_) => "library",
            Self::Forked(_) => "forked",
        }
    }
}
