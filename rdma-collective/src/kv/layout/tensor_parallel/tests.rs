//! Heads and latent vectors of each rank, and the numbers that do not fit.

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
    assert_eq!((TensorParallel { rank: 5, size: 7 }).heads(latent), Ok(0..1));
}

#[test]
fn ranks_and_heads_that_do_not_fit_are_refused() {
    let heads = |rank, size, whole| TensorParallel { rank, size }.heads(whole);
    assert_eq!(heads(2, 2, WHOLE), Err(LayoutError::NoSuchShard { rank: 2, size: 2 }));
    assert_eq!(heads(0, 0, WHOLE), Err(LayoutError::NoSuchShard { rank: 0, size: 0 }));
    assert_eq!(heads(0, 3, WHOLE), Err(LayoutError::UnevenHeads { kv_heads: 8, size: 3 }));
    let none = Attention::Grouped { kv_heads: 0, head_dim: 128 };
    assert_eq!(heads(0, 3, none), Err(LayoutError::UnevenHeads { kv_heads: 0, size: 3 }));
}
