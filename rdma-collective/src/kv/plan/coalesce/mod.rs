//! The merging of writes that are adjacent on both sides, up to a bound, and the refusal of lists that are not sound.

use std::iter::Fuse;

use super::WriteDescriptor;
use crate::kv::layout::Side;
use crate::kv::plan::PlanError;

/// The limits that a list of writes has to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the memory that is read.
    pub local_len: u64,
    /// Bytes of the memory that is written.
    pub remote_len: u64,
    /// Longest write that may come out, in bytes; longer ones are cut.
    pub write_bytes_max: u32,
}

/// Checks a list of writes in any order and merges those that are adjacent on both sides.
///
/// The result is in the order of the destination. A list may read the same bytes twice, but never write a byte twice.
///
/// # Errors
/// [`PlanError`] names the first write that is empty, wraps, is out of range or overlaps another at the destination.
///
/// ```
/// use rdma_collective::kv::plan::{Limits, WriteDescriptor, coalesce};
///
/// let write = |offset_local, offset_remote, len| WriteDescriptor { offset_local, offset_remote, len };
/// let limits = Limits { local_len: 100, remote_len: 100, write_bytes_max: 64 };
/// let writes = coalesce(&[write(20, 60, 20), write(0, 0, 10), write(10, 50, 10)], limits)?;
/// assert_eq!(writes, [write(0, 0, 10), write(10, 50, 30)]);
/// # Ok::<(), rdma_collective::kv::plan::PlanError>(())
/// ```
pub fn coalesce(writes: &[WriteDescriptor], limits: Limits) -> Result<Vec<WriteDescriptor>, PlanError> {
    if limits.write_bytes_max == 0 {
        return Err(PlanError::BoundZero);
    }
    for (index, write) in writes.iter().enumerate() {
        if write.len == 0 {
            return Err(PlanError::Empty { index });
        }
        check_range(Side::Source, index, write.offset_local, write.len, limits.local_len)?;
        check_range(Side::Destination, index, write.offset_remote, write.len, limits.remote_len)?;
    }
    let mut sorted: Vec<(usize, WriteDescriptor)> = writes.iter().copied().enumerate().collect();
    sorted.sort_unstable_by_key(|(_, write)| write.offset_remote);
    for pair in sorted.windows(2) {
        let &[(first, one), (second, other)] = pair else { continue };
        if one.offset_remote + one.len > other.offset_remote {
            return Err(PlanError::Overlap { first: first.min(second), second: first.max(second) });
        }
    }
    Ok(Merge::new(sorted.into_iter().map(|(_, write)| write), limits.write_bytes_max).collect())
}

fn check_range(side: Side, index: usize, offset: u64, len: u64, memory: u64) -> Result<(), PlanError> {
    match offset.checked_add(len) {
        None => Err(PlanError::Wraps { side, index, offset, len }),
        Some(end) if end > memory => Err(PlanError::OutOfRange { side, index, end, memory }),
        Some(_) => Ok(()),
    }
}

/// An iterator that merges neighbours of a sequence of sound writes, as long as whole writes fit the bound together.
///
/// A write is cut only when it alone exceeds the bound, so that blocks stay whole where they can.
#[derive(Debug)]
pub(super) struct Merge<I> {
    writes: Fuse<I>,
    /// Write that was taken from `writes` and not yet yielded.
    pending: Option<WriteDescriptor>,
    write_bytes_max: u64,
}

impl<I: Iterator<Item = WriteDescriptor>> Merge<I> {
    /// Merges `writes`; the bound must not be 0.
    pub(super) fn new(writes: I, write_bytes_max: u32) -> Self {
        Self { writes: writes.fuse(), pending: None, write_bytes_max: write_bytes_max.into() }
    }
}

impl<I: Iterator<Item = WriteDescriptor>> Iterator for Merge<I> {
    type Item = WriteDescriptor;

    fn next(&mut self) -> Option<WriteDescriptor> {
        let mut write = self.pending.take().or_else(|| self.writes.next())?;
        let bound = self.write_bytes_max;
        if write.len > bound {
            self.pending = Some(WriteDescriptor {
                offset_local: write.offset_local + bound,
                offset_remote: write.offset_remote + bound,
                len: write.len - bound,
            });
            return Some(WriteDescriptor { len: bound, ..write });
        }
        for next in self.writes.by_ref() {
            let adjacent = write.offset_local + write.len == next.offset_local
                && write.offset_remote + write.len == next.offset_remote;
            if !adjacent || write.len + next.len > bound {
                self.pending = Some(next);
                break;
            }
            write.len += next.len;
        }
        Some(write)
    }
}

#[cfg(test)]
mod tests;
