//! Typed references to the words of a segment, which another process may change at any time.

#![expect(unsafe_code, reason = "makes references to words that another process changes")]

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::segment::Segment;

/// A type whose values may lie in memory that another process writes.
///
/// # Safety
///
/// `Self` consists of integer atomics: any bytes are a value of it, they may change behind a shared reference, and
/// dropping it does nothing.
pub(super) unsafe trait Shared {}

/// A slice of `T`s in a segment, which it keeps mapped.
///
/// # Invariants
///
/// `first` is aligned, `count` is not 0, that many lie within the segment, and the mapping lives as long as this
/// value.
#[derive(Debug)]
pub(super) struct SharedSlice<T> {
    segment: Arc<Segment>,
    first: NonNull<T>,
    count: usize,
}

// SAFETY: `first` points into the segment that this value keeps mapped, and `T` is made of atomics (by `Shared`), so
// another thread may use it.
unsafe impl<T: Shared> Send for SharedSlice<T> {}
// SAFETY: a `&SharedSlice` only reads `first` and `count`, which never change, and gives out atomics, so concurrent
// use does not race.
unsafe impl<T: Shared> Sync for SharedSlice<T> {}

impl<T: Shared> SharedSlice<T> {
    /// Refers to `count` values from byte `offset` on; `None` when they are not within the segment, not aligned, or
    /// none.
    pub(super) fn new(segment: &Arc<Segment>, offset: usize, count: usize) -> Option<Self> {
        let end = count.checked_mul(size_of::<T>())?.checked_add(offset)?;
        if count == 0 || end > segment.len() || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: `offset` is at most the segment's length (checked above), so the address is within its mapping.
        let first = unsafe { segment.as_ptr().add(offset) }.cast();
        // INVARIANT: bounds, alignment (the segment is page-aligned) and count were checked above, and the segment is
        // kept.
        Some(Self { segment: Arc::clone(segment), first, count })
    }

    /// Returns the segment that the slice is in.
    pub(super) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Returns the entry that a count which never wraps names, in a ring whose number of entries is a power of two.
    pub(super) fn ring_entry(&self, index: u64) -> &T {
        // The mask keeps the index below `count` whatever the peer's index is, so the access cannot panic: a peer
        // could end this process by a panic otherwise.
        &self[index as usize & (self.count - 1)]
    }
}

impl<T> Clone for SharedSlice<T> {
    fn clone(&self) -> Self {
        Self { segment: Arc::clone(&self.segment), first: self.first, count: self.count }
    }
}

impl<T: Shared> Deref for SharedSlice<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: by the invariant `count` values lie there, mapped and aligned; any bytes are a `T` (by `Shared`),
        // so a peer's stores cannot make an invalid value.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

/// A reference to exactly one `T` of a segment, which it keeps mapped.
#[derive(Debug)]
pub(super) struct SharedRef<T>(SharedSlice<T>);

impl<T: Shared> SharedRef<T> {
    /// Refers to the value at byte `offset`; `None` when it is not within the segment or not aligned.
    pub(super) fn new(segment: &Arc<Segment>, offset: usize) -> Option<Self> {
        SharedSlice::new(segment, offset, 1).map(Self)
    }

    /// Returns the segment that the value is in.
    pub(super) fn segment(&self) -> &Arc<Segment> {
        self.0.segment()
    }
}

impl<T> Clone for SharedRef<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Shared> Deref for SharedRef<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: by the invariant of `SharedSlice`, whose count is never 0, one value lies there.
        unsafe { self.0.first.as_ref() }
    }
}
