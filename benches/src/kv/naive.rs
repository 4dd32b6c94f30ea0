//! The copy of a case's elements that a server would write first: one thread, loops over all indices.

use rdma_collective::kv::layout::HeadOrder;

use super::{BLOCK_TOKENS, BLOCKS, Case, MODEL, list};
use crate::samples::median_of;
use crate::soft::Outcome;

/// Bytes of a head of a token.
const ELEMENT: usize = 256;

/// The seconds that one thread takes to copy the elements of a case whose prefill is one rank, inside this process.
///
/// # Errors
///
/// None: it is as other measurements are.
pub fn copy(case: Case) -> Outcome<f64> {
    let (heads, tokens) = (MODEL.attention.heads() as usize, BLOCK_TOKENS as usize);
    let own = heads / case.sizes()[1] as usize;
    let source = vec![1_u8; case.bytes()];
    let mut targets = vec![vec![2_u8; case.bytes() * own / heads]; heads / own];
    let blocks: Vec<_> = list(0).into_iter().zip(list(1)).collect();
    median_of(|| {
        for layer in 0..MODEL.layers as usize {
            for &(from, to) in &blocks {
                for part in 0..2 {
                    let place = |block: u32| ((layer * BLOCKS as usize + block as usize) * 2 + part) * tokens;
                    for token in 0..tokens {
                        for (rank, target) in targets.iter_mut().enumerate() {
                            let first = (place(from) + token) * heads + rank * own;
                            let Some(row) = source.get(first * ELEMENT..(first + own) * ELEMENT) else {
                                return Err("a row outside the source".into());
                            };
                            let start = place(to) * own;
                            match case.orders()[1] {
                                // Heads of a token are neighbours at both ends.
                                HeadOrder::Nhd => {
                                    let at = (start + token * own) * ELEMENT;
                                    target[at..at + row.len()].copy_from_slice(row);
                                }
                                HeadOrder::Hnd => {
                                    for (head, element) in row.chunks_exact(ELEMENT).enumerate() {
                                        let at = (start + head * tokens + token) * ELEMENT;
                                        target[at..at + ELEMENT].copy_from_slice(element);
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        std::hint::black_box(&mut targets);
        Ok(())
    })
}
