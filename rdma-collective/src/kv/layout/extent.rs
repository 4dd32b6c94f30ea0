//! Ranges of a block in a layer.

use super::Placed;

/// A range of a pool, in bytes from its start.
///
/// Returned by [`Layout::extents`](crate::kv::layout::Layout::extents).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// First byte of the range.
    pub offset: u64,
    /// Length of the range in bytes; never 0.
    pub len: u64,
}

/// The ranges of a block of a group in one of its layers: part by part, each in the order of its memory. Adjacent
/// ranges are one.
pub(super) fn of_block(placed: &Placed, row: usize, block: u32) -> Vec<Extent> {
    let parts = placed.parts();
    let mut extents: Vec<Extent> = Vec::with_capacity(parts);
    for place in placed.places.iter().skip(row * parts).take(parts) {
        let nest = placed.nest(place);
        let start = place.offset + u64::from(block) * place.block;
        for [offset, _] in nest.offsets() {
            let next = Extent { offset: start + offset, len: nest.len };
            match extents.last_mut() {
                Some(last) if last.offset + last.len == next.offset => last.len += next.len,
                _ => extents.push(next),
            }
        }
    }
    extents
}
