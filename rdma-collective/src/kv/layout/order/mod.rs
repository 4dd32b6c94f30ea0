//! The order of layers, blocks and parts in a pool, and the offsets that follow from it.

use std::fmt;

use super::{Attention, Shape, TensorParallel};
use crate::kv::layout::LayoutError;

/// The order of a pool's dimensions in memory, the outermost first.
///
/// [`HeadOrder`] is the order within a part of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// `[layer][block][part]`: key and value of a block are adjacent, as FlashInfer keeps them.
    LayerBlockPart,
    /// `[layer][part][block]`: all keys of a layer, then all values, as FlashAttention keeps them.
    LayerPartBlock,
    /// `[block][layer][part]`: all layers of a block are adjacent, which makes the longest writes.
    BlockLayerPart,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::LayerBlockPart => "layer, block, part",
            Self::LayerPartBlock => "layer, part, block",
            Self::BlockLayerPart => "block, layer, part",
        })
    }
}

/// The order of tokens and heads within a part of a block, the outermost first.
///
/// A transfer moves the same bytes for either order, so pools that differ in it would hand each other garbled blocks;
/// links compare it.
///
/// A part of [`Shape`](crate::kv::layout::Shape).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum HeadOrder {
    /// `[token][head][element]`: the heads of a token are adjacent.
    #[default]
    #[doc(alias = "NHD")]
    Nhd,
    /// `[head][token][element]`: the tokens of a head are adjacent.
    #[doc(alias = "HND")]
    Hnd,
}

impl fmt::Display for HeadOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nhd => "token, head, element (NHD)",
            Self::Hnd => "head, token, element (HND)",
        })
    }
}

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

/// A [`Shape`] whose every offset is known to be in bounds.
///
/// ```
/// use rdma_collective::kv::layout::{Layout, Model, Order};
///
/// let layout = Layout::new(Model::LLAMA_3_1_8B.shape(16, 1024, Order::LayerPartBlock))?;
/// assert_eq!(layout.block_bytes(), 16 * 131072);
/// let [key, value] = layout.extents(0, 3)?.collect::<Vec<_>>()[..] else { unreachable!() };
/// assert_eq!(value.offset - key.offset, layout.bytes() / 32 / 2);
/// # Ok::<(), rdma_collective::kv::layout::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    shape: Shape,
    /// Bytes of one part of one block in one layer.
    part_bytes: u64,
    bytes: u64,
}

impl Layout {
    /// Lays out `shape`.
    ///
    /// # Errors
    /// [`LayoutError`] when a dimension is 0, when the tensor-parallel rank is not below the size, when a latent
    /// cache asks for keys and values apart, or when the pool has more bytes than a machine can address.
    pub fn new(shape: Shape) -> Result<Self, LayoutError> {
        let dimensions = [
            ("layers", shape.layers),
            ("blocks", shape.blocks),
            ("tokens a block", shape.block_tokens),
            (
                "key-value heads",
                if let Attention::Grouped { kv_heads, .. } = shape.attention { kv_heads } else { 1 },
            ),
            (
                "elements a head",
                match shape.attention {
                    Attention::Grouped { head_dim, .. } => head_dim,
                    Attention::Latent { dim } => dim,
                },
            ),
        ];
        if let Some(&(dimension, _)) = dimensions.iter().find(|(_, size)| *size == 0) {
            return Err(LayoutError::Zero { dimension });
        }
        let TensorParallel { rank, size } = shape.tensor_parallel;
        if rank >= size {
            return Err(LayoutError::NoSuchShard { rank, size });
        }
        if shape.attention.parts() == 1 && shape.order == Order::LayerPartBlock {
            return Err(LayoutError::OnePart);
        }
        let product =
            |factors: &[u64]| factors.iter().try_fold(1_u64, |all, factor| all.checked_mul(*factor));
        let part_bytes = product(&[
            shape.attention.part_elements(),
            shape.cache_type.size().into(),
            shape.block_tokens.into(),
        ]);
        let pieces = [shape.attention.parts().into(), shape.layers.into(), shape.blocks.into()];
        let bytes = part_bytes.and_then(|part| product(&pieces)?.checked_mul(part));
        match (part_bytes, bytes) {
            (Some(part_bytes), Some(bytes)) if bytes <= isize::MAX as u64 => {
                Ok(Self { shape, part_bytes, bytes })
            }
            _ => Err(LayoutError::TooLarge { shape }),
        }
    }

    /// The shape of the pool.
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Bytes of the whole pool.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of one block over all layers.
    #[must_use]
    pub const fn block_bytes(&self) -> u64 {
        self.bytes / self.shape.blocks as u64
    }

    /// Bytes of one block in one layer.
    #[must_use]
    pub const fn layer_block_bytes(&self) -> u64 {
        self.part_bytes * self.shape.attention.parts() as u64
    }

    /// Bytes of one token over all layers.
    #[must_use]
    pub const fn token_bytes(&self) -> u64 {
        self.block_bytes() / self.shape.block_tokens as u64
    }

    /// The ranges of `block` in `layer`: one, or two when keys and values are apart.
    ///
    /// # Errors
    /// [`LayoutError`] when there is no such layer or no such block.
    pub fn extents(
        &self,
        layer: u32,
        block: u32,
    ) -> Result<impl Iterator<Item = Extent> + use<>, LayoutError> {
        let Shape { layers, blocks, .. } = self.shape;
        if layer >= layers {
            return Err(LayoutError::NoSuchLayer { layer, layers });
        }
        if block >= blocks {
            return Err(LayoutError::NoSuchBlock { block, blocks });
        }
        let layout = *self;
        Ok((0..self.pieces()).map(move |piece| layout.extent(layer, piece, block)))
    }

    /// Fails unless a pool of this layout fits memory of `len` bytes.
    ///
    /// # Errors
    /// [`LayoutError::MemoryTooSmall`] when it does not.
    pub(crate) fn check_memory(&self, len: u64) -> Result<(), LayoutError> {
        if len < self.bytes {
            return Err(LayoutError::MemoryTooSmall { need: self.bytes, len });
        }
        Ok(())
    }

    /// Finds the layer and the block of byte `offset`, and the end of the range that the byte lies in. The caller
    /// passes an offset below the bytes of the pool.
    pub(crate) fn locate(&self, offset: u64) -> (u32, u32, u64) {
        let Shape { layers, blocks, .. } = self.shape;
        let [layers, blocks] = [layers, blocks].map(u64::from);
        let len = self.layer_block_bytes() / u64::from(self.pieces());
        let index = offset / len;
        let (layer, block) = match self.shape.order {
            Order::LayerBlockPart => (index / blocks, index % blocks),
            Order::LayerPartBlock => (index / blocks / 2, index % blocks),
            Order::BlockLayerPart => (index % layers, index / layers),
        };
        (layer as u32, block as u32, (index + 1) * len)
    }

    /// Number of separate ranges of a block in a layer.
    pub(crate) const fn pieces(&self) -> u32 {
        match self.shape.order {
            Order::LayerPartBlock => 2,
            Order::LayerBlockPart | Order::BlockLayerPart => 1,
        }
    }

    /// The range `piece` of a block. The caller has checked the indices, so nothing here overflows: every
    /// intermediate is below the bytes of the pool.
    pub(crate) fn extent(&self, layer: u32, piece: u32, block: u32) -> Extent {
        let Shape { layers, blocks, .. } = self.shape;
        let [layer, piece, block, layers, blocks] = [layer, piece, block, layers, blocks].map(u64::from);
        let len = self.layer_block_bytes() / u64::from(self.pieces());
        let index = match self.shape.order {
            Order::LayerBlockPart => layer * blocks + block,
            Order::LayerPartBlock => (layer * 2 + piece) * blocks + block,
            Order::BlockLayerPart => block * layers + layer,
        };
        Extent { offset: index * len, len }
    }
}

#[cfg(test)]
pub(in crate::kv) mod tests;
