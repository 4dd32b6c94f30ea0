//! Memory that the library did not allocate, and what became of its pages.

#![expect(unsafe_code, reason = "replaces pages of which the caller allowed it")]

use std::any::Any;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use super::adopted::Adopted;
use super::backing::Backing;
use super::replaced_pages::{ReplacedPages, ReplaceError};
use super::raw::Raw;
use crate::error::UnshareError;
use crate::memory::{Sharing, Unshared};

/// See the module.
///
/// # Invariants
///
/// - `may_replace` only if the caller promised what [`allow`](Self::allow) says. `pages` are of `bytes`.
/// - `bytes` are there until this is dropped, and are dropped on no pages but their own: whoever gets them next does not
///   expect that others have them mapped.
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
    /// The first ones, which could not be put back.
    PartlyReplaced(Box<ReplacedPages>, Unshared),
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
        let (pages, bytes) = (PageState::Original(Unshared::NotAllowed), ManuallyDrop::new(bytes));
        Self { pages, bytes, may_replace: false }
    }

    /// The value that it was adopted from, with its own pages again, unless it is of another type or they cannot be.
    pub(crate) fn into_owner<T: 'static>(mut self) -> Result<T, Self> {
        if !matches!(&*self.bytes, Bytes::Adopted(adopted) if adopted.is_of::<T>())
            || self.put_back().is_err()
        {
            return Err(self);
        }
        let mut emptied = ManuallyDrop::new(self);
        // SAFETY: what they are taken from is not used any more; its pages are their own, which nothing is to be done for.
        match unsafe { ManuallyDrop::take(&mut emptied.bytes) } {
            Bytes::Adopted(adopted) => {
                adopted.into_owner().map_err(|adopted| Self::new(Bytes::Adopted(adopted)))
            }
            raw @ Bytes::Raw(_) => Err(Self::new(raw)),
        }
    }

    /// Has the bytes on pages of their own again. No device may know of them. After an error it can be called again.
    pub(crate) fn put_back(&mut self) -> Result<(), UnshareError> {
        let (PageState::Replaced(pages) | PageState::PartlyReplaced(pages, _)) = &mut self.pages else { return Ok(()) };
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

    /// Its pages may be replaced from now on.
    ///
    /// # Safety
    ///
    /// - For as long as this lives, nobody else changes what its bytes are mapped to.
    /// - Nobody else accesses them during a call of [`share`](Self::share), [`put_back`](Self::put_back) or
    ///   [`into_owner`](Self::into_owner), and while this is dropped.
    pub(crate) unsafe fn allow(&mut self) {
        // INVARIANT: the caller's promise.
        self.may_replace = true;
        if matches!(self.pages, PageState::Original(Unshared::NotAllowed)) {
            self.pages = PageState::Original(Unshared::NotNeeded);
        }
    }

    /// Replaces its pages by some that can be shared, if that is allowed and can be. No device may know of them.
    pub(crate) fn share(&mut self) {
        if !self.may_replace || matches!(self.pages, PageState::Replaced(_)) || self.len() == 0 {
            return;
        }
        if matches!(self.pages, PageState::PartlyReplaced(..)) && self.put_back().is_err() {
            return;
        }
        // SAFETY: by the invariant the bytes live longer than their pages, and the caller promised the rest.
        self.pages = match unsafe { ReplacedPages::replace(self.as_ptr(), self.len()) } {
            Ok(pages) => {
                if let Bytes::Raw(_) = &*self.bytes {
                    // By raw pointers, of which nobody knows when they are used.
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
            PageState::Original(unshared) | PageState::PartlyReplaced(_, unshared) => Sharing::Unshared(*unshared),
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
            // SAFETY: dropped here alone, and not used any more.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.bytes) },
            Err(error) => tracing::error!(
                %error,
                bytes = self.len(),
                "memory of the caller's is leaked, not freed: it is still on the shared pages that were put in its place"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
