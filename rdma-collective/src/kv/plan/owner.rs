//! The owner of each head: the tensor-parallel rank of the source that sends the head to a rank of the destination.

use std::ops::Range;

use crate::kv::layout::{Attention, LayoutError, TensorParallel};

/// The heads that source rank `source` sends to destination rank `destination`: none, or neighbours.
///
/// Every head that the destination rank holds has one owner among the source ranks that hold it, and each rank computes
/// the owner alike. Destination ranks that hold the same head take it from different owners, as far as there are any.
///
/// ```
/// use rdma_collective::kv::layout::{Attention, TensorParallel};
/// use rdma_collective::kv::plan::heads_sent;
///
/// let whole = Attention::Grouped { kv_heads: 8, head_dim: 128 };
/// let rank = |rank, size| TensorParallel { rank, size };
/// assert_eq!(heads_sent(whole, rank(1, 4), rank(0, 2))?, 2..4);
/// assert_eq!(heads_sent(whole, rank(2, 4), rank(0, 2))?, 0..0);
/// # Ok::<(), rdma_collective::kv::layout::LayoutError>(())
/// ```
///
/// # Errors
///
/// The errors of [`TensorParallel::heads`].
pub fn heads_sent(
    whole: Attention,
    source: TensorParallel,
    destination: TensorParallel,
) -> Result<Range<u32>, LayoutError> {
    let (held, wanted) = (source.heads(whole)?, destination.heads(whole)?);
    let none = 0..0;
    if let Attention::Latent { .. } = whole {
        // Every rank holds the one vector.
        return Ok(if destination.rank % source.size == source.rank { held } else { none });
    }
    let heads = whole.heads();
    // Ranks that hold the same head, at either side: 1 unless there are more ranks than heads.
    let copies = |of: TensorParallel| (of.size / heads).max(1);
    let (here, there) = (copies(source), copies(destination));
    if source.rank % here != destination.rank % there % here {
        return Ok(none);
    }
    let sent = held.start.max(wanted.start)..held.end.min(wanted.end);
    Ok(if sent.is_empty() { none } else { sent })
}

/// The source ranks, of `size`, that send heads to destination rank `destination`, in ascending order.
///
/// # Errors
///
/// The errors of [`TensorParallel::heads`].
pub fn sources(whole: Attention, size: u32, destination: TensorParallel) -> Result<Vec<u32>, LayoutError> {
    let mut heard = Vec::new();
    for rank in 0..size {
        if !heads_sent(whole, TensorParallel { rank, size }, destination)?.is_empty() {
            heard.push(rank);
        }
    }
    Ok(heard)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [u32; 6] = [1, 2, 4, 8, 16, 32];

    #[test]
    fn every_head_has_one_owner() {
        let whole = Attention::Grouped { kv_heads: 8, head_dim: 128 };
        for (size, there) in SIZES.iter().flat_map(|size| SIZES.map(|there| (*size, there))) {
            for rank in 0..there {
                let destination = TensorParallel { rank, size: there };
                let sent = |rank| heads_sent(whole, TensorParallel { rank, size }, destination).unwrap();
                let mut all: Vec<u32> = (0..size).flat_map(sent).collect();
                all.sort_unstable();
                let wanted: Vec<u32> = destination.heads(whole).unwrap().collect();
                assert_eq!(all, wanted, "{size} ranks to rank {rank} of {there}");
            }
        }
    }

    #[test]
    fn copies_of_a_head_share_the_work() {
        let whole = Attention::Grouped { kv_heads: 8, head_dim: 128 };
        let to = |rank| sources(whole, 16, TensorParallel { rank, size: 16 }).unwrap();
        assert_eq!((to(6), to(7)), (vec![6], vec![7]));
        let latent = Attention::Latent { dim: 576 };
        let to = |rank| sources(latent, 2, TensorParallel { rank, size: 4 }).unwrap();
        assert_eq!([to(0), to(1), to(2), to(3)], [vec![0], vec![1], vec![0], vec![1]]);
    }

    #[test]
    fn three_ranks_and_eight_heads_are_refused() {
        let whole = Attention::Grouped { kv_heads: 8, head_dim: 128 };
        let refused = sources(whole, 3, TensorParallel { rank: 0, size: 2 });
        assert_eq!(refused, Err(LayoutError::UnevenHeads { kv_heads: 8, size: 3 }));
    }
}
