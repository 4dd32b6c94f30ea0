//! A range that does not fit.

/// A range is reversed, or reaches beyond what it is a range of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("range {start}..{end} does not fit into {len} bytes: mend the offset or the length")]
pub struct RangeError {
    /// First byte asked for.
    pub start: u64,
    /// The byte after the last.
    pub end: u64,
    /// Bytes there are.
    pub len: u64,
}

impl RangeError {
    /// `offset..offset + len` within `bound` bytes, or the error; a sum that wraps is an error.
    #[inline]
    pub(crate) fn check(offset: u64, len: u64, bound: u64) -> Result<(), Self> {
        match offset.checked_add(len) {
            Some(end) if end <= bound => Ok(()),
            end => Err(Self { start: offset, end: end.unwrap_or(u64::MAX), len: bound }),
        }
    }
}
