//! The part of a model's cache that one tensor-parallel rank holds.

use std::fmt;
use std::ops::Range;

use super::Attention;
use crate::kv::layout::LayoutError;

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
/// assert_eq!(rank.shard(whole)?, Attention::Grouped { kv_heads: 2, head_dim: 128 });
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

    /// The part of `whole` that this rank holds.
    ///
    /// # Errors
    /// The errors of [`TensorParallel::heads`].
    pub fn shard(self, whole: Attention) -> Result<Attention, LayoutError> {
        let heads = self.heads(whole)?;
        Ok(match whole {
            Attention::Grouped { head_dim, .. } => {
                Attention::Grouped { kv_heads: heads.end - heads.start, head_dim }
            }
            Attention::Latent { .. } => whole,
        })
    }

    /// The key-value heads of `whole` that this rank holds; a latent vector counts as one head.
    ///
    /// # Errors
    /// [`LayoutError::NoSuchShard`] when the rank is not below the size, [`LayoutError::UnevenHeads`] when
    /// neither the heads divide by the ranks nor the ranks by the heads.
    pub fn heads(self, whole: Attention) -> Result<Range<u32>, LayoutError> {
        let Self { rank, size } = self;
        if rank >= size {
            return Err(LayoutError::NoSuchShard { rank, size });
        }
        match whole {
            Attention::Latent { .. } => Ok(0..1),
            Attention::Grouped { kv_heads, .. } if kv_heads > 0 && kv_heads.is_multiple_of(size) => {
                let each = kv_heads / size;
                Ok(rank * each..(rank + 1) * each)
            }
            Attention::Grouped { kv_heads, .. } if kv_heads > 0 && size.is_multiple_of(kv_heads) => {
                let head = rank / (size / kv_heads);
                Ok(head..head + 1)
            }
            Attention::Grouped { kv_heads, .. } => Err(LayoutError::UnevenHeads { kv_heads, size }),
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
mod tests {
    use super::*;

    const WHOLE: Attention = Attention::Grouped { kv_heads: 8, head_dim: 128 };

    #[test]
    fn every_head_is_held_by_equally_many_ranks() {
        for size in [1, 2, 4, 8, 16, 32] {
            let mut holders = [0; 8];
            for rank in 0..size {
                for head in (TensorParallel { rank, size }).heads(WHOLE).unwrap() {
                    holders[head as usize] += 1;
                }
            }
            assert_eq!(holders, [(size / 8).max(1); 8], "{size} ranks");
        }
    }

    #[test]
    fn a_latent_vector_is_on_every_rank() {
        let latent = Attention::Latent { dim: 576 };
        assert_eq!((TensorParallel { rank: 5, size: 7 }).shard(latent), Ok(latent));
    }

    #[test]
    fn ranks_and_heads_that_do_not_fit_are_refused() {
        let shard = |rank, size, whole| TensorParallel { rank, size }.shard(whole);
        assert_eq!(shard(2, 2, WHOLE), Err(LayoutError::NoSuchShard { rank: 2, size: 2 }));
        assert_eq!(shard(0, 0, WHOLE), Err(LayoutError::NoSuchShard { rank: 0, size: 0 }));
        assert_eq!(shard(0, 3, WHOLE), Err(LayoutError::UnevenHeads { kv_heads: 8, size: 3 }));
        let none = Attention::Grouped { kv_heads: 0, head_dim: 128 };
        assert_eq!(shard(0, 3, none), Err(LayoutError::UnevenHeads { kv_heads: 0, size: 3 }));
    }
}
