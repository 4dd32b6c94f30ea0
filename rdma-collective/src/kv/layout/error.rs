//! Errors of KV layouts, and the side of a transfer that errors name.

use std::fmt;

use crate::kv::layout::{Order, Shape, TensorParallel};

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
    /// The order keeps all layers of a block adjacent, but each layer is to have tensors of its own.
    #[error(
        "the order {order} keeps all layers of a block adjacent, so its layers have one tensor; choose another order"
    )]
    TensorsOfOrder {
        /// The order asked for.
        order: Order,
    },
    /// The numbers of the layers do not ascend, or are not as many as the shape has.
    #[error(
        "{given} numbers do not name {layers} layers; give each layer its number in the model, in ascending order"
    )]
    LayerNumbers {
        /// Numbers that were given.
        given: usize,
        /// Layers of the shape.
        layers: u32,
    },
    /// A layout has more of something than it may have.
    #[error("a pool has at most {max} {what}; use fewer, or several pools")]
    TooMany {
        /// Plural name of the things.
        what: &'static str,
        /// Most that a layout may have.
        max: u64,
    },
    /// Places were given for another number of parts than the group has.
    #[error("{given} places do not place {parts} parts; give one for each part of each layer")]
    Places {
        /// Places that were given.
        given: usize,
        /// Parts of all layers of the group.
        parts: usize,
    },
    /// A place names a tensor that the group does not have.
    #[error("tensor {tensor} is not one of {tensors}; tensors count from 0")]
    NoSuchTensor {
        /// The tensor asked for.
        tensor: u32,
        /// Tensors of the group.
        tensors: usize,
    },
    /// A tensor is shorter than what is placed in it.
    #[error(
        "tensor {tensor} has {len} bytes, and its layers need {need}; check its length, offset and strides"
    )]
    TensorTooShort {
        /// The tensor, by its position in the group.
        tensor: u32,
        /// Bytes needed.
        need: u64,
        /// Bytes that it has.
        len: u64,
    },
    /// The strides of a place step into what they repeat.
    #[error(
        "strides in tensor {tensor} step into each other; a stride is at least as long as all that it steps over"
    )]
    StridesOverlap {
        /// The tensor, by its position in the group.
        tensor: u32,
    },
    /// Two places share bytes.
    #[error(
        "places {first} and {second} overlap in tensor {tensor}; give each part of each layer bytes of its own"
    )]
    PlacesOverlap {
        /// The tensor, by its position in the group.
        tensor: u32,
        /// The first place, by its position in the group.
        first: usize,
        /// The second place.
        second: usize,
    },
    /// A group shares the memory of a group that comes behind it, or that shares the memory of another one.
    #[error(
        "group {group} cannot share the memory of group {with}; name an earlier group that has tensors of its own"
    )]
    SharedGroup {
        /// The group.
        group: usize,
        /// The group that it names.
        with: usize,
    },
    /// Groups that share memory have different numbers of blocks.
    #[error(
        "group {group} has {blocks} blocks, and group {with}, whose memory it shares, {theirs}; give both equally many"
    )]
    SharedBlocks {
        /// The group.
        group: usize,
        /// Blocks of the group.
        blocks: u32,
        /// The group whose memory it shares.
        with: usize,
        /// The blocks of that group.
        theirs: u32,
    },
    /// Groups share memory in which a block of one lies in two blocks of the other.
    #[error(
        "blocks of groups {} and {} lie across each other in tensor {tensor}; groups that share memory have their \
         blocks at the same distances, each within the bytes of the other's, or apart from them",
        groups[0], groups[1]
    )]
    BlocksMeet {
        /// The groups, by their positions.
        groups: [usize; 2],
        /// The tensor, by its position in the layout.
        tensor: u32,
    },
    /// The group is not one of the layout's.
    #[error("group {group} is not one of {groups}; groups count from 0")]
    NoSuchGroup {
        /// The group asked for.
        group: usize,
        /// Groups of the layout.
        groups: usize,
    },
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
    /// No head goes from the one tensor-parallel rank to the other.
    #[error(
        "tensor-parallel {destination} takes no head from {source_rank}: connect it with the source ranks {heard:?}"
    )]
    NotHeard {
        /// The rank of the source.
        source_rank: TensorParallel,
        /// The rank of the destination.
        destination: TensorParallel,
        /// The source ranks that have heads for the destination.
        heard: Vec<u32>,
    },
}

impl LayoutError {
    /// This error as the other end sees it.
    pub(in crate::kv) fn seen_by_the_other_end(self) -> Self {
        match self {
            Self::Differs { field, ours, theirs } => Self::Differs { field, ours: theirs, theirs: ours },
            other => other,
        }
    }
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
