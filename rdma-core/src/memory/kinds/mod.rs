//! Kinds of memory that can be registered, behind one address and one length.
//!
//! Each kind owns how its bytes are made and released. Who may look at the bytes, and when, is left to the
//! parent module.

mod allocated;
mod backing;
mod bytes;
mod foreign;
mod pages;
mod replaced_pages;

use std::ptr::NonNull;

use allocated::Allocated;
pub(crate) use backing::Backing;
pub(crate) use foreign::Foreign;
pub(crate) use pages::{Irreplaceable, Pages, Patch};

use super::Sharing;
use crate::error::RegisterError;
use crate::metrics;

/// Mapped bytes, readable and writable as long as this value lives, at an address that never changes.
#[derive(Debug)]
pub(crate) enum Mapping {
    Allocated(Allocated),
    Foreign(Foreign),
}

impl Mapping {
    /// Allocates `len` zeroed bytes.
    ///
    /// # Errors
    ///
    /// The errors of [`Allocated::allocate`].
    pub(crate) fn allocate(len: usize) -> Result<Self, RegisterError> {
        Allocated::allocate(len).map(Self::Allocated).inspect_err(metrics::registration_refused)
    }

    /// Allocates `len` zeroed bytes whose pages keep their bytes for peers that have them mapped.
    ///
    /// # Errors
    ///
    /// The errors of [`Allocated::allocate`].
    pub(crate) fn allocate_window(len: usize) -> Result<Self, RegisterError> {
        let window = Allocated::allocate(len).map(Allocated::outlived).map(Self::Allocated);
        window.inspect_err(metrics::registration_refused)
    }

    /// Returns the address of the first byte.
    #[inline]
    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        match self {
            Self::Allocated(memory) => memory.as_ptr(),
            Self::Foreign(memory) => memory.as_ptr(),
        }
    }

    /// Returns the length in bytes, which may be 0 for memory that the library did not allocate.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Allocated(memory) => memory.len(),
            Self::Foreign(memory) => memory.len(),
        }
    }

    /// Makes the pages shareable, if the caller allows it. No device may have them registered.
    pub(crate) fn share(&mut self) {
        if let Self::Foreign(memory) = self {
            memory.share();
        }
    }

    /// Returns whether a peer on this host can map the pages.
    pub(crate) fn sharing(&self) -> Sharing {
        match self {
            Self::Allocated(_) => Sharing::Allocated,
            Self::Foreign(memory) => memory.sharing(),
        }
    }

    /// Returns the shareable pages, if there are any.
    pub(crate) fn backing(&self) -> Option<&Backing> {
        match self {
            Self::Allocated(memory) => Some(memory.backing()),
            Self::Foreign(memory) => memory.backing(),
        }
    }
}
