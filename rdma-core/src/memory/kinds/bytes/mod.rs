//! [`Bytes`]: bytes of the caller, which a value owns that was handed over whole, such as a `Vec<u8>`, or at an address
//! that the caller vouches for.

#![expect(unsafe_code, reason = "keeps the address of bytes beside the value that owns them")]

use std::any::{Any, TypeId};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// An address, a length, and the owner that keeps the bytes there.
///
/// # Invariants
///
/// `data..data + len` is readable, writable and initialised as long as `owner` is alive. An adopted owner lent it by
/// its `as_mut`, and is borrowed as long as this value lives.
pub(crate) struct Bytes {
    data: NonNull<u8>,
    len: usize,
    owner: Owner,
}

enum Owner {
    /// A value that came from `Box::leak`, and its type. Nobody else can reach the value before it becomes a box again.
    Adopted(NonNull<dyn Any + Send>, TypeId),
    /// A value that others go on using.
    Shared { _keep: Arc<dyn Any + Send + Sync> },
}

// SAFETY: the bytes are plain memory without thread affinity, and every owner is `Send`, so any thread may hold and
// drop them.
unsafe impl Send for Bytes {}
// SAFETY: `&Bytes` gives an immutable address and length only, and nothing of the owner, which need not be `Sync`.
unsafe impl Sync for Bytes {}

impl Bytes {
    pub(crate) fn adopt<T: AsMut<[u8]> + Send + 'static>(owner: T) -> Self {
        let owner: Box<T> = Box::new(owner);
        // As a raw pointer the owner may be moved: moving a `Box` would assert that nothing else points into
        // it, but `data` does.
        let owner = NonNull::from(Box::leak(owner));
        let mut borrowed = owner;
        // SAFETY: `owner` was leaked just now, so this is its only reference, and it is not used again before
        // the drop.
        let bytes = unsafe { borrowed.as_mut() }.as_mut();
        let (data, len) = (NonNull::from(&mut *bytes).cast(), bytes.len());
        // INVARIANT: leaked above, and not a box again before `into_owner` or `drop`.
        Self { data, len, owner: Owner::Adopted(owner, TypeId::of::<T>()) }
    }

    /// # Safety
    ///
    /// The range is readable, writable and initialised as long as `keep` is alive, and `len` is at most
    /// [`isize::MAX`].
    pub(crate) unsafe fn at(data: NonNull<u8>, len: usize, keep: Arc<dyn Any + Send + Sync>) -> Self {
        // INVARIANT: the caller promised it.
        Self { data, len, owner: Owner::Shared { _keep: keep } }
    }

    /// Returns whether others than the owner may access the bytes.
    pub(crate) fn are_shared(&self) -> bool {
        matches!(self.owner, Owner::Shared { .. })
    }

    /// Returns whether the bytes were adopted from a value of type `T`.
    pub(crate) fn are_of<T: 'static>(&self) -> bool {
        matches!(self.owner, Owner::Adopted(_, of) if of == TypeId::of::<T>())
    }

    /// Returns the adopted owner, unless there is none or it has another type.
    pub(crate) fn into_owner<T: 'static>(self) -> Result<T, Self> {
        match self.owner {
            Owner::Adopted(owner, of) if of == TypeId::of::<T>() => {
                std::mem::forget(self);
                // SAFETY: by the invariant, `owner` is a leaked box of type `T` that nobody else has. `self` was
                // forgotten, so the box is made only once, and the bytes are borrowed no more.
                Ok(*unsafe { Box::from_raw(owner.cast::<T>().as_ptr()) })
            }
            _ => Err(self),
        }
    }

    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        self.data
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        if let Owner::Adopted(owner, _) = self.owner {
            // SAFETY: by the invariant, `owner` is a leaked box that nobody else has. The bytes are borrowed no
            // more, since `self` is being dropped.
            drop(unsafe { Box::from_raw(owner.as_ptr()) });
        }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bytes").field("data", &self.data).field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
