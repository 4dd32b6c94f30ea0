//! The kinds of memory that can be registered, behind one address and one length.
//!
//! Each kind owns how its bytes come to be and how they go; what a device does with them, and who may look at them
//! meanwhile, is the parent's.

mod adopted;
mod allocated;
mod backing;
mod foreign;
mod replaced_pages;
mod pages;
mod raw;

use std::ptr::NonNull;

use allocated::Allocated;
pub(crate) use backing::Backing;
pub(crate) use foreign::Foreign;
pub(crate) use pages::{Irreplaceable, Pages, Patch};

use super::Sharing;
use crate::error::RegisterError;

/// Mapped bytes, readable and writable for as long as this value is alive, at an address that never changes.
#[derive(Debug)]
pub(crate) enum Mapping {
    Allocated(Allocated),
    Foreign(Foreign),
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

    /// The same, whose pages and bytes stay with whoever has mapped them.
    ///
    /// # Errors
    ///
    /// As for [`Allocated::allocate`].
    pub(crate) fn allocate_window(len: usize) -> Result<Self, RegisterError> {
        Allocated::allocate(len).map(Allocated::outlived).map(Self::Allocated)
    }

    /// The first byte.
    #[inline]
    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        match self {
            Self::Allocated(memory) => memory.as_ptr(),
            Self::Foreign(memory) => memory.as_ptr(),
        }
    }

    /// Bytes; memory that was not allocated here may have none.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Allocated(memory) => memory.len(),
            Self::Foreign(memory) => memory.len(),
        }
    }

    /// Has its pages such that a peer on this host can map them, if the caller allows it. No device may know of them.
    pub(crate) fn share(&mut self) {
        if let Self::Foreign(memory) = self {
            memory.share();
        }
    }

    /// Whether a peer on this host can map its pages.
    pub(crate) fn sharing(&self) -> Sharing {
        match self {
            Self::Allocated(_) => Sharing::Allocated,
            Self::Foreign(memory) => memory.sharing(),
        }
    }

    /// Its pages, when a peer on this host can map them.
    pub(crate) fn backing(&self) -> Option<&Backing> {
        match self {
            Self::Allocated(memory) => Some(memory.backing()),
            Self::Foreign(memory) => memory.backing(),
        }
    }
}
