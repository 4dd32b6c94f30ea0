//! The order of layers, blocks and parts in memory, and of tokens and heads within a part.

use std::fmt;

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
/// Pools may differ in it: a transfer then puts each head of each token where the destination has it.
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
