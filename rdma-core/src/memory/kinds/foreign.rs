//! Memory that the library did not allocate, and what became of its pages.

#![expect(unsafe_code, reason = "replaces pages of which the caller allowed it")]

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use super::adopted::Adopted;
use super::backing::Backing;
use super::in_place::InPlace;
use super::raw::Raw;
use crate::memory::{Sharing, Unshared};

/// See the module.
///
/// # Invariants
///
/// `may_replace` only if the caller promised what [`allow`](Self::allow) says. `pages` are of `bytes`, and go before them.
#[derive(Debug)]
pub(crate) struct Foreign {
    pages: Pages,
    bytes: Bytes,
    may_replace: bool,
}

#[derive(Debug)]
enum Bytes {
    Adopted(Adopted),
    Raw(Raw),
}

#[derive(Debug)]
enum Pages {
    Kept(Unshared),
    InPlace(InPlace),
}

impl Foreign {
    pub(crate) fn adopt<T: AsMut<[u8]> + Send + 'static>(owner: T) -> Self {
        Self::new(Bytes::Adopted(Adopted::new(owner)))
    }

    /// # Safety
    ///
    /// As for [`Raw::new`].
    pub(crate) unsafe fn from_raw_parts(
        data: NonNull<u8>,
        len: usize,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        // SAFETY: the caller's promise.
        Self::new(Bytes::Raw(unsafe { Raw::new(data, len, keep) }))
    }

    fn new(bytes: Bytes) -> Self {
        Self { pages: Pages::Kept(Unshared::NotAllowed), bytes, may_replace: false }
    }

    /// The value that it was adopted from, with its own pages again, unless it is of another type.
    pub(crate) fn into_owner<T: 'static>(self) -> Result<T, Self> {
        match self {
            Self { pages, bytes: Bytes::Adopted(adopted), .. } if adopted.is_of::<T>() => {
                drop(pages);
                adopted.into_owner().map_err(|adopted| Self::new(Bytes::Adopted(adopted)))
            }
            other => Err(other),
        }
    }

    /// Its pages may be replaced from now on.
    ///
    /// # Safety
    ///
    /// - For as long as this lives, nobody else changes what its bytes are mapped to.
    /// - Nobody else accesses them during a call of [`share`](Self::share), of [`into_owner`](Self::into_owner), and while
    ///   this is dropped.
    pub(crate) unsafe fn allow(&mut self) {
        // INVARIANT: the caller's promise.
        self.may_replace = true;
        if matches!(self.pages, Pages::Kept(Unshared::NotAllowed)) {
            self.pages = Pages::Kept(Unshared::NotNeeded);
        }
    }

    /// Replaces its pages by some that can be shared, if that is allowed and can be. No device may know of them.
    pub(crate) fn share(&mut self) {
        if !self.may_replace || matches!(self.pages, Pages::InPlace(_)) || self.len() == 0 {
            return;
        }
        // SAFETY: by the invariant the bytes live longer than their pages, and the caller promised the rest.
        self.pages = match unsafe { InPlace::replace(self.as_ptr(), self.len()) } {
            Ok(pages) => {
                if let Bytes::Raw(_) = self.bytes {
                    // By raw pointers, of which nobody knows when they are used.
                    pages.backing().pages.lend();
                }
                Pages::InPlace(pages)
            }
            Err(unshared) => Pages::Kept(unshared),
        };
    }

    pub(crate) fn sharing(&self) -> Sharing {
        match &self.pages {
            Pages::Kept(unshared) => Sharing::Unshared(*unshared),
            Pages::InPlace(_) => Sharing::InPlace,
        }
    }

    pub(crate) fn backing(&self) -> Option<&Backing> {
        match &self.pages {
            Pages::Kept(_) => None,
            Pages::InPlace(pages) => Some(pages.backing()),
        }
    }

    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        match &self.bytes {
            Bytes::Adopted(memory) => memory.as_ptr(),
            Bytes::Raw(memory) => memory.as_ptr(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.bytes {
            Bytes::Adopted(memory) => memory.len(),
            Bytes::Raw(memory) => memory.len(),
        }
    }
}
