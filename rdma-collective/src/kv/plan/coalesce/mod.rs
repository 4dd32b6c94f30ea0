//! Merging of writes that are adjacent in both pools, up to a bound.

use std::iter::Fuse;

use super::WriteDescriptor;

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
