//! Errors of KV layouts, and the side of a transfer that errors name.

use std::fmt;

use crate::kv::layout::Shape;

/// The reason why a shape has no layout, or two layouts do not match.
///
/// Raised by [`Layout::new`](crate::kv::layout::Layout::new).
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A dimension is 0.
    #[error("a pool with 0 {dimension} holds nothing; give every dimension at least 1")]
    Zero {
        /// The dimension.
        dimension: &'static str,
    },
    /// The order separates keys from values, but a latent cache has one vector.
    #[error(
        "a latent cache has no keys and values to keep apart; use the order layer, block or block, layer"
    )]
    OnePart,
    /// The pool has more bytes than can be addressed.
    #[error(
        "a pool of {} layers, {} blocks of {} tokens and {} has more bytes than a machine can address; \
         use fewer blocks",
        shape.layers, shape.blocks, shape.block_tokens, shape.attention
    )]
    TooLarge {
        /// The shape asked for.
        shape: Shape,
    },
    /// The layer is not one of the pool's.
    #[error("layer {layer} is not one of {layers}; layers count from 0")]
    NoSuchLayer {
        /// The layer asked for.
        layer: u32,
        /// Layers of the pool.
        layers: u32,
    },
    /// The block is not one of the pool's.
    #[error("block {block} is not one of {blocks}; blocks count from 0")]
    NoSuchBlock {
        /// The block asked for.
        block: u32,
        /// Blocks of the pool.
        blocks: u32,
    },
    /// The memory is smaller than the pool.
    #[error("a pool of {need} bytes does not fit memory of {len} bytes; use fewer blocks or more memory")]
    MemoryTooSmall {
        /// Bytes of the pool.
        need: u64,
        /// Bytes of the memory.
        len: u64,
    },
    /// The tensor-parallel rank is not one of the group.
    #[error("tensor-parallel rank {rank} is not one of {size}; ranks count from 0")]
    NoSuchShard {
        /// The rank asked for.
        rank: u32,
        /// Ranks of the group.
        size: u32,
    },
    /// Heads cannot be spread evenly.
    #[error(
        "{kv_heads} key-value heads and {size} tensor-parallel ranks do not divide; \
         choose a size that divides the heads or is a multiple of them"
    )]
    UnevenHeads {
        /// Heads of the model.
        kv_heads: u32,
        /// Ranks of the group.
        size: u32,
    },
    /// The peer encodes shapes in another version.
    #[error(
        "the peer describes its pool in version {theirs}, this side in version {ours}; run one release on both"
    )]
    OtherVersion {
        /// Our version.
        ours: u16,
        /// The peer's.
        theirs: u16,
    },
    /// The peer's description of its pool is damaged.
    #[error("the peer's description of its pool has an unknown {field}; run one release on both sides")]
    Malformed {
        /// The field that is wrong.
        field: &'static str,
    },
    /// Two pools cannot exchange blocks.
    #[error("pools differ in {field}: here {ours}, there {theirs}; configure both sides alike")]
    Differs {
        /// The first field that differs.
        field: &'static str,
        /// Value at this side.
        ours: String,
        /// Value at the peer.
        theirs: String,
    },
}

/// A side of a transfer, as errors name it.
///
/// A part of [`PlanError`](crate::kv::PlanError).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side whose bytes are read.
    Source,
    /// The side whose bytes are written.
    Destination,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Source => "source",
            Self::Destination => "destination",
        })
    }
}
