//! Words of a segment, by type.

#![expect(unsafe_code, reason = "makes references to words that another process changes")]

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::segment::Segment;

/// What may be looked at where another process writes.
///
/// # Safety
///
/// `Self` consists of integer atomics: any bytes are a value of it, they may change behind a shared
/// reference, and dropping it does nothing.
pub(super) unsafe trait Shared {}

/// Some `T`s in a row.
///
/// # Invariants
///
/// `first` is aligned, `count` is not 0, that many lie within the segment, and the mapping lives as long as this.
#[derive(Debug)]
pub(super) struct SharedSlice<T> {
    segment: Arc<Segment>,
    first: NonNull<T>,
    count: usize,
}

// SAFETY: `first` points into the segment that is kept, and `T` is made of atomics.
unsafe impl<T: Shared> Send for SharedSlice<T> {}
// SAFETY: as above.
unsafe impl<T: Shared> Sync for SharedSlice<T> {}

impl<T: Shared> SharedSlice<T> {
    /// `count` of them from byte `offset` on; `None` when they do not lie there, or are none.
    pub(super) fn new(segment: &Arc<Segment>, offset: usize, count: usize) -> Option<Self> {
        let end = count.checked_mul(size_of::<T>())?.checked_add(offset)?;
        if count == 0 || end > segment.len() || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: the offset is within the segment, whose first byte is page-aligned.
        let first = unsafe { segment.as_ptr().add(offset) }.cast();
        // INVARIANT: checked above; the segment is kept.
        Some(Self { segment: Arc::clone(segment), first, count })
    }

    pub(super) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// The one that a count which never wraps names, in a ring whose places are a power of two.
    pub(super) fn ring_entry(&self, index: u64) -> &T {
        // Not beyond the last, whatever the index and the number of places are.
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
        // SAFETY: by the invariant, and since any bytes are a `T` that others may change.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

/// Exactly one.
#[derive(Debug)]
pub(super) struct SharedRef<T>(SharedSlice<T>);

impl<T: Shared> SharedRef<T> {
    /// The one at byte `offset`; `None` when it does not lie there.
    pub(super) fn new(segment: &Arc<Segment>, offset: usize) -> Option<Self> {
        SharedSlice::new(segment, offset, 1).map(Self)
    }

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
        // SAFETY: by the invariant of `SharedSlice`, of which there is one.
        unsafe { self.0.first.as_ref() }
    }
}
