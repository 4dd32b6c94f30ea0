//! The kinds of memory that can be registered, behind one address and one length.
//!
//! Each kind owns how its bytes come to be and how they go; what a device does with them, and who may look at them
//! meanwhile, is the parent's.

mod adopted;
mod allocated;
mod raw;

use std::ptr::NonNull;

pub(crate) use adopted::Adopted;
use allocated::Allocated;
pub(crate) use allocated::Backing;
pub(crate) use raw::Raw;

use crate::error::RegisterError;

/// Mapped bytes, readable and writable for as long as this value is alive, at an address that never changes.
#[derive(Debug)]
pub(crate) enum Mapping {
    Allocated(Allocated),
    Adopted(Adopted),
    Raw(Raw),
}

impl Mapping {
    /// `len` zeroed bytes of the library's own.
    ///
    /// # Errors
    ///
    /// As for [`Allocated::allocate`].
    pub(crate) fn allocate(len: usize) -> Result<Self, RegisterError> {
        Allocated::allocate(len).map(Self::Allocated)
    }

    /// The first byte.
    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        match self {
            Self::Allocated(memory) => memory.as_ptr(),
            Self::Adopted(memory) => memory.as_ptr(),
            Self::Raw(memory) => memory.as_ptr(),
        }
    }

    /// Bytes; memory that was not allocated here may have none.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Allocated(memory) => memory.len(),
            Self::Adopted(memory) => memory.len(),
            Self::Raw(memory) => memory.len(),
        }
    }

    /// Its pages, when a peer on this host can map them: of memory that was allocated here.
    pub(crate) fn backing(&self) -> Option<&Backing> {
        match self {
            Self::Allocated(memory) => Some(memory.backing()),
            Self::Adopted(_) | Self::Raw(_) => None,
        }
    }
}
