//! [`RangeError`]: a range of bytes that does not fit.

use std::ops::Range;

/// A range is reversed, or reaches beyond the bytes that there are.
///
/// Raised by the copies of a [`Region`](crate::Region) and by [`RemoteMemory::slice`](crate::RemoteMemory::slice).
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("range {start}..{end} does not fit into {len} bytes: correct the offset or the length")]
pub struct RangeError {
    /// The first byte of the range.
    pub start: u64,
    /// The byte after the last one of the range.
    pub end: u64,
    /// Bytes that there are.
    pub len: u64,
}

impl RangeError {
    /// Checks that `range` is not reversed and lies within `len` bytes.
    pub(crate) fn check_range(range: Range<u64>, len: u64) -> Result<(), Self> {
        let Range { start, end } = range;
        if start <= end && end <= len { Ok(()) } else { Err(Self { start, end, len }) }
    }

    /// Checks that `offset..offset + len` lies within `bound` bytes. A sum that overflows is an error, never
    /// a small number.
    #[inline]
    pub(crate) fn check(offset: u64, len: u64, bound: u64) -> Result<(), Self> {
        match offset.checked_add(len) {
            Some(end) if end <= bound => Ok(()),
            end => Err(Self { start: offset, end: end.unwrap_or(u64::MAX), len: bound }),
        }
    }
}
