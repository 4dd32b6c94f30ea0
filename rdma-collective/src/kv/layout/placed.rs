//! A group whose places are known.

use std::ops::Range;

use super::nest::{Dim, Nest};
use super::overlap::Frame;
use super::{Extent, Group, LAYERS_MAX, LayoutError, Order, Place, overlap};

/// A group of a layout, with the place of each part of each of its layers.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::kv) struct Placed {
    pub(in crate::kv) group: Group,
    /// Heads of the model that this rank holds.
    pub(in crate::kv) heads: Range<u32>,
    /// Bytes of one head of one token in one part.
    pub(in crate::kv) element_bytes: u64,
    /// Bytes of one block in one layer.
    pub(in crate::kv) layer_block_bytes: u64,
    /// Number of its block 0 in the layout.
    pub(in crate::kv) first_block: u32,
    /// Number in the layout of the block that has the memory of its block 0: another one only in a group that shares
    /// the memory of an earlier one.
    pub(super) first_base: u32,
    /// Number of its tensor 0 in the layout.
    pub(super) first_tensor: u32,
    /// Positions of its layers among those of the layout, in ascending order.
    pub(in crate::kv) layers: Vec<u32>,
    /// By layer, then by part; the offsets count from the start of the pool.
    pub(in crate::kv) places: Vec<Place>,
}

impl Placed {
    /// Places a group whose block 0 has the number `first_block`, and returns the lengths of its tensors, too.
    pub(super) fn new(group: Group, first_block: u32) -> Result<(Self, Vec<u64>), LayoutError> {
        let shape = *group.shape();
        let dimensions = [
            ("layers", shape.layers),
            ("blocks", shape.blocks),
            ("tokens a block", shape.block_tokens),
            ("key-value heads", shape.attention.heads()),
            ("elements a head", shape.attention.elements()),
        ];
        if let Some(&(dimension, _)) = dimensions.iter().find(|(_, size)| *size == 0) {
            return Err(LayoutError::Zero { dimension });
        }
        if shape.attention.parts() == 1 && shape.order == Order::LayerPartBlock {
            return Err(LayoutError::OnePart);
        }
        let heads = shape.tensor_parallel.heads(shape.attention)?;
        let held = u64::from(heads.end - heads.start);
        let product =
            |factors: &[u64]| factors.iter().try_fold(1_u64, |all, factor| all.checked_mul(*factor));
        let parts = u64::from(shape.attention.parts());
        let part_bytes = product(&[shape.element_bytes(), held, shape.block_tokens.into()]);
        let bytes = part_bytes
            .and_then(|part| product(&[part, parts, shape.layers.into(), shape.blocks.into()]))
            .filter(|bytes| *bytes <= isize::MAX as u64);
        let (Some(part_bytes), Some(bytes)) = (part_bytes, bytes) else {
            return Err(LayoutError::TooLarge { shape });
        };
        if shape.layers > LAYERS_MAX {
            return Err(LayoutError::TooMany { what: "layers", max: LAYERS_MAX.into() });
        }
        let (tensors, places) = group.places(&heads, (part_bytes, bytes))?;
        let element_bytes = shape.element_bytes();
        let counts = [shape.blocks, shape.block_tokens, heads.end - heads.start];
        if group.given_places().is_some() {
            overlap::check(&places, counts, element_bytes)?;
        }
        let (layer_block_bytes, layers) = (part_bytes * parts, Vec::new());
        let (first_base, first_tensor) = (first_block, 0);
        Ok((
            Self {
                group,
                heads,
                element_bytes,
                layer_block_bytes,
                first_block,
                first_base,
                first_tensor,
                layers,
                places,
            },
            tensors,
        ))
    }

    /// Turns numbers and offsets of the group's tensors into those of the pool, whose tensors are `tensors`.
    pub(super) fn settle(&mut self, tensors: &[Extent]) {
        for place in &mut self.places {
            place.tensor += self.first_tensor;
            place.offset += tensors.get(place.tensor as usize).map_or(0, |tensor| tensor.offset);
        }
    }

    /// The bytes of the blocks, for groups that share them, in the order of tensors.
    pub(super) fn frames(&self) -> Vec<Frame> {
        let (tokens, heads) = (self.group.shape().block_tokens, self.heads.end - self.heads.start);
        let frame = |place: &Place| Frame {
            tensor: place.tensor,
            start: place.offset,
            len: self.element_bytes + u64::from(tokens - 1) * place.token + u64::from(heads - 1) * place.head,
            stride: place.block,
            blocks: self.group.shape().blocks,
        };
        let mut frames: Vec<_> = self.places.iter().map(frame).collect();
        frames.sort_by_key(|frame| frame.tensor);
        frames
    }

    /// Parts of each layer.
    pub(in crate::kv) fn parts(&self) -> usize {
        self.group.shape().attention.parts() as usize
    }

    /// The position in this group of a layer of the layout.
    pub(in crate::kv) fn row(&self, layer: u32) -> Option<usize> {
        self.layers.binary_search(&layer).ok()
    }

    /// Loops over the tokens and heads of one part.
    pub(super) fn nest(&self, place: &Place) -> Nest {
        let token = Dim { count: self.group.shape().block_tokens, steps: [place.token; 2] };
        let head = Dim { count: self.heads.end - self.heads.start, steps: [place.head; 2] };
        Nest::new(self.element_bytes, [Dim::ONE, token, head], 0)
    }
}
