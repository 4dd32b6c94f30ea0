//! The heads of a model that one tensor-parallel rank holds.

use std::fmt;
use std::ops::Range;

use super::Attention;
use crate::kv::layout::LayoutError;

/// Most tensor-parallel ranks, so that a peer's layout names no more than a job can have.
const RANKS_MAX: u32 = 65536;

/// A rank of the group over which the heads of a model are spread.
///
/// The rule is that of inference servers: heads are split evenly; with more ranks than heads, each head is kept by
/// several ranks; a latent vector is kept by all.
///
/// ```
/// use rdma_collective::kv::layout::{Attention, TensorParallel};
///
/// let whole = Attention::Grouped { kv_heads: 8, head_dim: 128 };
/// let rank = TensorParallel { rank: 3, size: 4 };
/// assert_eq!(rank.heads(whole)?, 6..8);
/// # Ok::<(), rdma_collective::kv::layout::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorParallel {
    /// This rank, below `size`.
    pub rank: u32,
    /// Number of ranks that share the model.
    pub size: u32,
}

impl TensorParallel {
    /// The only rank of a group of one, which has all heads.
    pub const WHOLE: Self = Self { rank: 0, size: 1 };

    /// The heads of `whole` that this rank holds; a latent vector counts as one head.
    ///
    /// # Errors
    /// [`LayoutError::NoSuchShard`] when the rank is not below the size, [`LayoutError::UnevenHeads`] when
    /// neither the heads divide by the ranks nor the ranks by the heads, [`LayoutError::TooMany`] above 65536 ranks.
    pub fn heads(self, whole: Attention) -> Result<Range<u32>, LayoutError> {
        let Self { rank, size } = self;
        if rank >= size {
            return Err(LayoutError::NoSuchShard { rank, size });
        }
        if size > RANKS_MAX {
            return Err(LayoutError::TooMany { what: "tensor-parallel ranks", max: RANKS_MAX.into() });
        }
        let heads = whole.heads();
        match whole {
            Attention::Latent { .. } => Ok(0..1),
            _ if heads > 0 && heads.is_multiple_of(size) => {
                let each = heads / size;
                Ok(rank * each..(rank + 1) * each)
            }
            _ if heads > 0 && size.is_multiple_of(heads) => {
                let head = rank / (size / heads);
                Ok(head..head + 1)
            }
            _ => Err(LayoutError::UnevenHeads { kv_heads: heads, size }),
        }
    }
}

impl Default for TensorParallel {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl fmt::Display for TensorParallel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank, self.size)
    }
}

#[cfg(test)]
mod tests;
