//! The shape of a pool: layers, blocks, tokens and heads. Offsets follow from it in `order`.

use std::fmt;

use super::{CacheType, HeadOrder, Order, TensorParallel};
use crate::kv::layout::LayoutError;

/// The cache entry of a token in one layer.
///
/// A part of [`Shape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attention {
    /// A key and a value for each key-value head: multi-head, grouped-query and multi-query attention.
    #[doc(alias = "GQA")]
    #[doc(alias = "MHA")]
    Grouped {
        /// Key-value heads that this pool holds: after tensor parallelism, those of one rank.
        kv_heads: u32,
        /// Elements of a head's key, and of its value.
        head_dim: u32,
    },
    /// A single latent vector from which keys and values are made: multi-head latent attention.
    #[doc(alias = "MLA")]
    Latent {
        /// Elements of the vector, its rotary part included.
        dim: u32,
    },
}

impl Attention {
    /// Separate parts of a token: key and value, or the one latent vector.
    #[must_use]
    pub const fn parts(self) -> u32 {
        match self {
            Self::Grouped { .. } => 2,
            Self::Latent { .. } => 1,
        }
    }

    /// Elements of one part of a token in one layer.
    pub(super) const fn part_elements(self) -> u64 {
        match self {
            Self::Grouped { kv_heads, head_dim } => kv_heads as u64 * head_dim as u64,
            Self::Latent { dim } => dim as u64,
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
        }
    }
}

/// The shape of a pool, and its order in memory. A [`Layout`](super::Layout) is made of it.
///
/// Two pools that exchange blocks agree on everything but `blocks`; of a latent cache, which every rank has whole, on
/// everything but `blocks`, `head_order` and `tensor_parallel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Layers of the model that this pool holds.
    pub layers: u32,
    /// Blocks in each layer; a block has the same number in all of them.
    pub blocks: u32,
    /// Tokens a block.
    pub block_tokens: u32,
    /// Cache entry of a token in a layer.
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
    /// use rdma_collective::kv::layout::{Attention, Model, Order, TensorParallel};
    ///
    /// let whole = Model::LLAMA_3_1_70B.shape(16, 1000, Order::LayerPartBlock);
    /// let shard = whole.of_rank(TensorParallel { rank: 3, size: 4 })?;
    /// assert_eq!(shard.attention, Attention::Grouped { kv_heads: 2, head_dim: 128 });
    /// # Ok::<(), rdma_collective::kv::layout::LayoutError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`TensorParallel::heads`].
    pub fn of_rank(self, tensor_parallel: TensorParallel) -> Result<Self, LayoutError> {
        let attention = tensor_parallel.shard(self.attention)?;
        Ok(Self { attention, tensor_parallel, ..self })
    }

    /// The part of the shape that two pools must agree on; the other fields get a fixed value.
    pub(super) const fn agreed(self) -> Self {
        let Self { head_order, tensor_parallel, .. } = self;
        let (head_order, tensor_parallel) = match self.attention {
            Attention::Grouped { .. } => (head_order, tensor_parallel),
            // All ranks hold the one latent vector, so rank and head order do not matter.
            Attention::Latent { .. } => (HeadOrder::Nhd, TensorParallel::WHOLE),
        };
        Self { blocks: 0, head_order, tensor_parallel, ..self }
    }
}
