//! The shape of a pool: layers, blocks, tokens and heads. Offsets follow from it in `order`.

use std::fmt;

use super::{CacheType, HeadOrder, Order, TensorParallel};
use crate::kv::layout::LayoutError;

/// The cache entry of a token in one layer.
///
/// A part of [`Shape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attention {
    /// A key and a value for each key-value head: multi-head, grouped-query and multi-query attention, and the scales
    /// of a quantised cache.
    #[doc(alias = "GQA")]
    #[doc(alias = "MHA")]
    Grouped {
        /// Key-value heads of the model, over all tensor-parallel ranks.
        kv_heads: u32,
        /// Elements of a head's key, and of its value.
        head_dim: u32,
    },
    /// A single vector that all tensor-parallel ranks hold: the latent vector of multi-head latent attention, or the
    /// key of an indexer.
    #[doc(alias = "MLA")]
    Latent {
        /// Elements of the vector, its rotary part included.
        dim: u32,
    },
    /// A state that stands for all tokens before: state-space models and linear attention. Such a group has blocks of
    /// one token, the state after the last one.
    #[doc(alias = "Mamba")]
    Recurrent {
        /// Heads of the model, over all tensor-parallel ranks.
        heads: u32,
        /// Elements of the state of one head.
        elements: u32,
    },
}

impl Attention {
    /// Separate parts of a token: key and value, or one.
    #[must_use]
    pub const fn parts(self) -> u32 {
        match self {
            Self::Grouped { .. } => 2,
            Self::Latent { .. } | Self::Recurrent { .. } => 1,
        }
    }

    /// Heads over which tensor parallelism spreads the cache; a vector that all ranks hold counts as one.
    #[must_use]
    pub const fn heads(self) -> u32 {
        match self {
            Self::Grouped { kv_heads, .. } => kv_heads,
            Self::Latent { .. } => 1,
            Self::Recurrent { heads, .. } => heads,
        }
    }

    /// Elements of one head in one part.
    #[must_use]
    pub const fn elements(self) -> u32 {
        match self {
            Self::Grouped { head_dim, .. } => head_dim,
            Self::Latent { dim } => dim,
            Self::Recurrent { elements, .. } => elements,
        }
    }
}

impl fmt::Display for Attention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grouped { kv_heads, head_dim } => {
                write!(f, "{kv_heads} key-value heads of {head_dim} elements")
            }
            Self::Latent { dim } => write!(f, "a latent vector of {dim} elements"),
            Self::Recurrent { heads, elements } => {
                write!(f, "a state of {heads} heads of {elements} elements")
            }
        }
    }
}

/// The shape of layers of one kind, and their order in memory. A [`Layout`](super::Layout) is made of it.
///
/// Two pools that exchange blocks have the same `attention` and `cache_type`, and `block_tokens` of which one divides
/// the other. They may differ in everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Layers that this pool holds.
    pub layers: u32,
    /// Blocks in each layer; a block has the same number in all of them.
    pub blocks: u32,
    /// Tokens a block.
    pub block_tokens: u32,
    /// Cache entry of a token in a layer, in the whole model.
    pub attention: Attention,
    /// The type of its elements.
    pub cache_type: CacheType,
    /// The order in memory.
    pub order: Order,
    /// The order of tokens and heads within a part of a block.
    pub head_order: HeadOrder,
    /// Tensor-parallel rank whose heads the pool holds.
    pub tensor_parallel: TensorParallel,
}

impl Shape {
    /// The pool of one tensor-parallel rank, where this is the pool of the whole model.
    ///
    /// ```
    /// use rdma_collective::kv::layout::{Model, Order, TensorParallel};
    ///
    /// let whole = Model::LLAMA_3_1_70B.shape(16, 1000, Order::LayerPartBlock);
    /// let shard = whole.of_rank(TensorParallel { rank: 3, size: 4 })?;
    /// assert_eq!(shard.tensor_parallel.heads(shard.attention)?, 6..8);
    /// # Ok::<(), rdma_collective::kv::layout::LayoutError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`TensorParallel::heads`].
    pub fn of_rank(self, tensor_parallel: TensorParallel) -> Result<Self, LayoutError> {
        tensor_parallel.heads(self.attention)?;
        Ok(Self { tensor_parallel, ..self })
    }

    /// Bytes of one head of one token in one part, which are adjacent in every layout.
    pub(super) const fn element_bytes(&self) -> u64 {
        self.attention.elements() as u64 * self.cache_type.size() as u64
    }
}
