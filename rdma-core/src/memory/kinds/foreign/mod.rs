//! [`Foreign`]: memory that the library did not allocate, with the state of its pages.

#![expect(unsafe_code, reason = "replaces pages of which the caller allowed it")]

use std::any::Any;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use super::adopted::Adopted;
use super::backing::Backing;
use super::raw::Raw;
use super::replaced_pages::{ReplaceError, ReplacedPages};
use crate::error::UnshareError;
use crate::memory::{Sharing, Unshared};

/// Memory of the caller, and whether its pages are the caller's or shareable ones.
///
/// # Invariants
///
/// - `may_replace` is set only if the caller promised what [`allow`](Self::allow) requires. `pages` is the
///   state of the pages of `bytes`.
/// - `bytes` live until this value is dropped, and are dropped only on pages of their own: whoever gets the
///   memory next does not expect that other processes have its pages mapped.
#[derive(Debug)]
pub(crate) struct Foreign {
    pages: PageState,
    bytes: ManuallyDrop<Bytes>,
    may_replace: bool,
}

#[derive(Debug)]
enum Bytes {
    Adopted(Adopted),
    Raw(Raw),
}

#[derive(Debug)]
enum PageState {
    Original(Unshared),
    Replaced(Box<ReplacedPages>),
    /// Pages that could not be put back: a first part is still shareable.
    PartlyReplaced(Box<ReplacedPages>, Unshared),
}

impl Foreign {
    pub(crate) fn adopt<T: AsMut<[u8]> + Send + 'static>(owner: T) -> Self {
        Self::new(Bytes::Adopted(Adopted::new(owner)))
    }

    /// # Safety
    ///
    /// The promises of [`Raw::new`].
    pub(crate) unsafe fn from_raw_parts(
        data: NonNull<u8>,
        len: usize,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        // SAFETY: the caller promises what `Raw::new` requires, since both have one contract.
        Self::new(Bytes::Raw(unsafe { Raw::new(data, len, keep) }))
    }

    fn new(bytes: Bytes) -> Self {
        let (pages, bytes) = (PageState::Original(Unshared::NotAllowed), ManuallyDrop::new(bytes));
        Self { pages, bytes, may_replace: false }
    }

    /// Returns the value that the bytes were adopted from, on pages of its own. Fails if the value has
    /// another type, or if its pages cannot be put back.
    pub(crate) fn into_owner<T: 'static>(mut self) -> Result<T, Self> {
        if !matches!(&*self.bytes, Bytes::Adopted(adopted) if adopted.is_of::<T>())
            || self.put_back().is_err()
        {
            return Err(self);
        }
        let mut emptied = ManuallyDrop::new(self);
        // SAFETY: `emptied` is never dropped nor used again, so the bytes are moved out just once. Its pages
        // are the caller's own, so nothing else needs a release.
        match unsafe { ManuallyDrop::take(&mut emptied.bytes) } {
            Bytes::Adopted(adopted) => {
                adopted.into_owner().map_err(|adopted| Self::new(Bytes::Adopted(adopted)))
            }
            raw @ Bytes::Raw(_) => Err(Self::new(raw)),
        }
    }

    /// Puts the bytes back on pages of their own. No device may have them registered. After an error the call
    /// can be repeated.
    pub(crate) fn put_back(&mut self) -> Result<(), UnshareError> {
        let (PageState::Replaced(pages) | PageState::PartlyReplaced(pages, _)) = &mut self.pages else {
            return Ok(());
        };
        let done = pages.put_back();
        let now = match std::mem::replace(&mut self.pages, PageState::Original(Unshared::NotNeeded)) {
            PageState::Replaced(pages) | PageState::PartlyReplaced(pages, _) => {
                done.err().map(|denied| PageState::PartlyReplaced(pages, denied.into()))
            }
            PageState::Original(_) => None,
        };
        self.pages = now.unwrap_or(PageState::Original(Unshared::NotNeeded));
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
        if matches!(self.pages, PageState::Original(Unshared::NotAllowed)) {
            self.pages = PageState::Original(Unshared::NotNeeded);
        }
    }

    /// Replaces the pages by shareable ones, if that is allowed and possible. No device may have them
    /// registered.
    pub(crate) fn share(&mut self) {
        if !self.may_replace || matches!(self.pages, PageState::Replaced(_)) || self.len() == 0 {
            return;
        }
        // Replacing starts from the caller's own pages, so a part that is still shareable is put back first.
        if matches!(self.pages, PageState::PartlyReplaced(..)) && self.put_back().is_err() {
            return;
        }
        // SAFETY: by the invariant, the bytes outlive their pages, and since `may_replace` is set the caller
        // promised the rest.
        self.pages = match unsafe { ReplacedPages::replace(self.as_ptr(), self.len()) } {
            Ok(pages) => {
                if let Bytes::Raw(_) = &*self.bytes {
                    // The caller may write through raw pointers at any moment, so pages of this memory can
                    // never be evicted safely.
                    pages.backing().pages.lend();
                }
                PageState::Replaced(Box::new(pages))
            }
            Err(ReplaceError { why, left: None }) => PageState::Original(why),
            Err(ReplaceError { why, left: Some(pages) }) => PageState::PartlyReplaced(Box::new(pages), why),
        };
    }

    pub(crate) fn sharing(&self) -> Sharing {
        match &self.pages {
            PageState::Original(unshared) | PageState::PartlyReplaced(_, unshared) => {
                Sharing::Unshared(*unshared)
            }
            PageState::Replaced(_) => Sharing::InPlace,
        }
    }

    pub(crate) fn backing(&self) -> Option<&Backing> {
        match &self.pages {
            PageState::Original(_) | PageState::PartlyReplaced(..) => None,
            PageState::Replaced(pages) => Some(pages.backing()),
        }
    }

    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        match &*self.bytes {
            Bytes::Adopted(memory) => memory.as_ptr(),
            Bytes::Raw(memory) => memory.as_ptr(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match &*self.bytes {
            Bytes::Adopted(memory) => memory.len(),
            Bytes::Raw(memory) => memory.len(),
        }
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
