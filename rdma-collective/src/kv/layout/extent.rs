//! Ranges of a block in a layer.

use super::{Layout, Placed};

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

/// Adds a range behind others. Adjacent ranges are one.
fn push(extents: &mut Vec<Extent>, next: Extent) {
    match extents.last_mut() {
        Some(last) if last.offset + last.len == next.offset => last.len += next.len,
        _ => extents.push(next),
    }
}

/// The ranges of a block of a group in one of its layers: part by part, each in the order of its memory. Adjacent
/// ranges are one.
pub(super) fn of_block(placed: &Placed, row: usize, block: u32) -> Vec<Extent> {
    let parts = placed.parts();
    let mut extents = Vec::with_capacity(parts);
    for place in placed.places.iter().skip(row * parts).take(parts) {
        let nest = placed.nest(place);
        let start = place.offset + u64::from(block) * place.block;
        for [offset, _] in nest.offsets() {
            push(&mut extents, Extent { offset: start + offset, len: nest.len });
        }
    }
    extents
}

impl Layout {
    /// The ranges of blocks in all layers, in the order of memory. Blocks that the layout does not have are left out.
    ///
    /// A request may have a hundred thousand of them, so the loops over a block are made once for all blocks.
    pub(in crate::kv) fn extents_of(&self, blocks: &[u32]) -> Vec<Extent> {
        let mut blocks: Vec<_> =
            blocks.iter().filter_map(|block| Some((self.group_of(*block)?, *block))).collect();
        blocks.sort_unstable_by_key(|(_, block)| *block);
        let mut extents = Vec::new();
        for group in blocks.chunk_by(|((one, _), _), ((next, _), _)| one == next) {
            let Some(((_, placed), _)) = group.first() else { continue };
            for place in &placed.places {
                let nest = placed.nest(place);
                for (_, block) in group {
                    let start = place.offset + u64::from(block - placed.first_block) * place.block;
                    for [offset, _] in nest.offsets() {
                        push(&mut extents, Extent { offset: start + offset, len: nest.len });
                    }
                }
            }
        }
        extents.sort_unstable_by_key(|extent| extent.offset);
        extents
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::layout::{Group, Model, Order, Shape, Tensors};

    #[test]
    fn the_ranges_of_blocks_are_those_of_each_block_in_each_layer() {
        for order in [Order::LayerPartBlock, Order::LayerBlockPart, Order::BlockLayerPart] {
            let shape = |blocks| Shape { layers: 3, ..Model::LLAMA_3_1_8B.shape(16, blocks, order) };
            let tensors = if order == Order::BlockLayerPart { Tensors::One } else { Tensors::PerLayer };
            let group = |blocks| Group::new(shape(blocks)).in_tensors(tensors);
            let layout = Layout::of([group(9).of_layers([0, 2, 5]), group(4).of_layers([1, 3, 4])]).unwrap();
            let blocks = [12, 3, 4, 9, 8, 99];
            let bytes = |extents: Vec<Extent>| {
                let mut bytes: Vec<_> =
                    extents.iter().flat_map(|of| [(of.offset, 0), (of.offset + of.len, 1)]).collect();
                bytes.sort_unstable();
                // An end that is a beginning too is no end.
                while let Some(at) = bytes.windows(2).position(|two| two[0].0 == two[1].0) {
                    bytes.drain(at..at + 2);
                }
                bytes
            };
            let each = (0..6).flat_map(|layer| blocks.map(|block| layout.extents(layer, block)));
            let each = bytes(each.flatten().flatten().collect());
            let all = layout.extents_of(&blocks);
            assert!(all.is_sorted_by_key(|extent| extent.offset));
            assert_eq!(bytes(all), each, "{order:?}");
        }
    }
}
