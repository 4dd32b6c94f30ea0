//! [`Adopted`]: bytes of a value that the caller handed over whole, such as a `Vec<u8>`.

#![expect(unsafe_code, reason = "keeps the address of bytes beside the value that owns them")]

use std::any::{Any, TypeId};
use std::fmt;
use std::ptr::NonNull;

/// A value and the bytes that it owns. Nobody else can reach the value meanwhile.
///
/// # Invariants
///
/// - `owner` came from `Box::leak` and has the type `of`. Nobody uses it before it becomes a box again.
/// - `data..data + len` is what its `as_mut` returned, borrowed from `owner` as long as this value lives.
pub(crate) struct Adopted {
    owner: NonNull<dyn Any + Send>,
    of: TypeId,
    data: NonNull<u8>,
    len: usize,
}

// SAFETY: the owner is `Send`, and its bytes are plain memory, so any thread may hold and drop them.
unsafe impl Send for Adopted {}
// SAFETY: `&Adopted` gives an immutable address and length only, and nothing of the owner, which need not be
// `Sync`.
unsafe impl Sync for Adopted {}

impl Adopted {
    pub(crate) fn new<T: AsMut<[u8]> + Send + 'static>(owner: T) -> Self {
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
        Self { owner, of: TypeId::of::<T>(), data, len }
    }

    /// Returns whether the owner has the type `T`.
    pub(crate) fn is_of<T: 'static>(&self) -> bool {
        self.of == TypeId::of::<T>()
    }

    /// Returns the owner, unless it has another type.
    pub(crate) fn into_owner<T: 'static>(self) -> Result<T, Self> {
        if !self.is_of::<T>() {
            return Err(self);
        }
        let owner = self.owner.cast::<T>();
        std::mem::forget(self);
        // SAFETY: by the invariant, `owner` is a leaked box of type `T` that nobody else has. `self` was
        // forgotten, so the box is made only once, and the bytes are borrowed no more.
        Ok(*unsafe { Box::from_raw(owner.as_ptr()) })
    }

    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        self.data
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        // SAFETY: by the invariant, `owner` is a leaked box that nobody else has. The bytes are borrowed no
        // more, since `self` is being dropped.
        drop(unsafe { Box::from_raw(self.owner.as_ptr()) });
    }
}

impl fmt::Debug for Adopted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adopted").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
