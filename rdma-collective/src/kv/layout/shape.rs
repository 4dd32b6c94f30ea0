//! What a pool holds: layers, blocks, tokens, heads and their type. Where it lies is `order`'s.

use std::fmt;

use super::Order;

/// What the cache keeps of a token in one layer.
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
    /// One latent vector from which keys and values are made: multi-head latent attention.
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

/// The type of the elements in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CacheType {
    /// `bfloat16`, what most models are served in.
    Bf16,
    /// IEEE 754 half precision.
    F16,
}

impl CacheType {
    /// Bytes of one element.
    #[must_use]
    pub const fn size(self) -> u32 {
        match self {
            Self::Bf16 | Self::F16 => 2,
        }
    }
}

impl fmt::Display for CacheType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bf16 => "bfloat16",
            Self::F16 => "half",
        })
    }
}

/// What a pool holds, and in which order. A [`Layout`](super::Layout) is made of it.
///
/// Two pools that exchange blocks agree on everything but `blocks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Layers of the model that this pool holds.
    pub layers: u32,
    /// Blocks in each layer; a block has the same number in all of them.
    pub blocks: u32,
    /// Tokens a block.
    pub block_tokens: u32,
    /// What is kept of a token in a layer.
    pub attention: Attention,
    /// The type of its elements.
    pub cache_type: CacheType,
    /// The order in memory.
    pub order: Order,
}
