//! [`Foreign`]: memory that the library did not allocate, with the state of its pages.

#![expect(unsafe_code, reason = "replaces pages of which the caller allowed it")]

use std::any::Any;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use super::backing::Backing;
use super::bytes::Bytes;
use super::replaced_pages::{ReplaceError, ReplacedPages};
use crate::error::UnshareError;
use crate::memory::{Sharing, Unshared};

/// Memory of the caller, and whether its pages are the caller's or shareable ones.
///
/// # Invariants
///
/// - `may_replace` is set only if the caller promised what [`allow`](Self::allow) requires.
/// - `shareable` is the pages in place of the caller's. `unshared` is the reason why peers cannot map all of `bytes`;
///   there is none only if all of their pages are shareable. A first part still is after pages could not be put back.
/// - `bytes` live until this value is dropped, and are dropped only on pages of their own: whoever gets the
///   memory next does not expect that other processes have its pages mapped.
#[derive(Debug)]
pub(crate) struct Foreign {
    shareable: Option<Box<ReplacedPages>>,
    unshared: Option<Unshared>,
    bytes: ManuallyDrop<Bytes>,
    may_replace: bool,
}

impl Foreign {
    pub(crate) fn adopt<T: AsMut<[u8]> + Send + 'static>(owner: T) -> Self {
        Self::new(Bytes::adopt(owner))
    }

    /// # Safety
    ///
    /// The promises of [`Bytes::at`].
    pub(crate) unsafe fn from_raw_parts(
        data: NonNull<u8>,
        len: usize,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        // SAFETY: the caller promises what `Bytes::at` requires, since both have one contract.
        Self::new(unsafe { Bytes::at(data, len, keep) })
    }

    fn new(bytes: Bytes) -> Self {
        let (unshared, bytes) = (Some(Unshared::NotAllowed), ManuallyDrop::new(bytes));
        Self { shareable: None, unshared, bytes, may_replace: false }
    }

    /// Returns the value that the bytes were adopted from, on pages of its own. Fails if the value has
    /// another type, or if its pages cannot be put back.
    pub(crate) fn into_owner<T: 'static>(mut self) -> Result<T, Self> {
        if !self.bytes.are_of::<T>() || self.put_back().is_err() {
            return Err(self);
        }
        let mut emptied = ManuallyDrop::new(self);
        // SAFETY: `emptied` is never dropped nor used again, so the bytes are moved out just once. Its pages
        // are the caller's own, so nothing else needs a release.
        unsafe { ManuallyDrop::take(&mut emptied.bytes) }.into_owner().map_err(Self::new)
    }

    /// Puts the bytes back on pages of their own. No device may have them registered. After an error the call
    /// can be repeated.
    pub(crate) fn put_back(&mut self) -> Result<(), UnshareError> {
        let Some(pages) = &mut self.shareable else { return Ok(()) };
        let done = pages.put_back();
        match done {
            Ok(()) => (self.shareable, self.unshared) = (None, Some(Unshared::NotNeeded)),
            Err(denied) => self.unshared = Some(denied.into()),
        }
        done.map_err(UnshareError::from)
    }

    /// Allows the pages to be replaced from now on.
    ///
    /// # Safety
    ///
    /// - As long as this value lives, nobody else changes what its bytes are mapped to.
    /// - Nobody else accesses the bytes during a call of [`share`](Self::share), [`put_back`](Self::put_back)
    ///   or [`into_owner`](Self::into_owner), nor from the moment that the caller gives this value away to be
    ///   dropped, by whichever thread and however late, until the bytes' owner is dropped.
    pub(crate) unsafe fn allow(&mut self) {
        // INVARIANT: the caller of this function promised it.
        self.may_replace = true;
        if self.unshared == Some(Unshared::NotAllowed) {
            self.unshared = Some(Unshared::NotNeeded);
        }
    }

    /// Replaces the pages by shareable ones, if that is allowed and possible. No device may have them
    /// registered.
    pub(crate) fn share(&mut self) {
        if !self.may_replace || self.unshared.is_none() || self.len() == 0 {
            return;
        }
        // Replacing starts from the caller's own pages, so a part that is still shareable is put back first.
        if self.put_back().is_err() {
            return;
        }
        // SAFETY: by the invariant, the bytes outlive their pages, and since `may_replace` is set the caller
        // promised the rest.
        (self.shareable, self.unshared) = match unsafe { ReplacedPages::replace(self.as_ptr(), self.len()) } {
            Ok(pages) => {
                if self.bytes.are_shared() {
                    // The caller may write through raw pointers at any moment, so pages of this memory can
                    // never be evicted safely.
                    pages.backing().pages.lend();
                }
                (Some(Box::new(pages)), None)
            }
            Err(ReplaceError { why, left }) => (left.map(Box::new), Some(why)),
        };
    }

    pub(crate) fn sharing(&self) -> Sharing {
        self.unshared.map_or(Sharing::InPlace, Sharing::Unshared)
    }

    pub(crate) fn backing(&self) -> Option<&Backing> {
        self.shareable.as_ref().filter(|_| self.unshared.is_none()).map(|pages| pages.backing())
    }

    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        self.bytes.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        match self.put_back() {
            // SAFETY: the field is dropped only here, and never used again.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.bytes) },
            Err(error) => crate::log::error!(
                %error,
                bytes = self.len(),
                "the caller's memory is leaked, not freed, because its own pages could not be put back"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
