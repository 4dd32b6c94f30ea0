//! The content of a block as one rank has it: its heads alone, in its order of tokens and heads. No I/O.

use crate::content::{Content, Owner};
use crate::presets::Request;
use rdma_collective::kv::layout::{HeadOrder, LayoutError, Shape};
use std::ops::Range;

/// Blocks of a rank's pool, by content.
#[derive(Debug, Clone)]
pub struct Blocks {
    content: Content,
    /// Pieces of a block, in the order in which the rank has them, as ranges of the block of a rank that has all heads,
    /// tokens before heads.
    pieces: Vec<Range<u64>>,
}

impl Blocks {
    /// The contents of `seed` in the pool of the request.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] for heads that the rank does not have.
    pub fn new(request: &Request, seed: u64) -> Result<Self, LayoutError> {
        Ok(Self { content: Content::new(seed), pieces: pieces(request)? })
    }

    /// Writes a block.
    pub fn fill(&self, owner: Owner, mut bytes: &mut [u8]) {
        for piece in self.pieces_of(owner, bytes.len()) {
            let Some((here, rest)) = bytes.split_at_mut_checked((piece.end - piece.start) as usize) else {
                return;
            };
            self.content.fill(owner, piece.start, here);
            bytes = rest;
        }
    }

    /// How many bytes of a block are not the owner's.
    pub fn wrong(&self, owner: Owner, mut bytes: &[u8]) -> u64 {
        let mut wrong = 0;
        for piece in self.pieces_of(owner, bytes.len()) {
            let Some((here, rest)) = bytes.split_at_checked((piece.end - piece.start) as usize) else {
                break;
            };
            wrong += self.content.wrong(owner, piece.start, here);
            bytes = rest;
        }
        wrong + bytes.len() as u64
    }

    /// Cuts a block of a request up as the rank has it; a block of the pool's own is one piece.
    fn pieces_of(&self, owner: Owner, len: usize) -> impl Iterator<Item = Range<u64>> + '_ {
        let (pieces, whole) = match owner {
            Owner::Request { .. } => (self.pieces.as_slice(), None),
            Owner::Pool { .. } => ([].as_slice(), Some(0..len as u64)),
        };
        whole.into_iter().chain(pieces.iter().cloned())
    }
}

fn pieces(request: &Request) -> Result<Vec<Range<u64>>, LayoutError> {
    let shape: &Shape = request.layout.shape();
    let (parts, tokens, all) = (shape.attention.parts(), shape.block_tokens, shape.attention.heads());
    let heads = shape.tensor_parallel.heads(shape.attention)?;
    let element = u64::from(shape.attention.elements()) * u64::from(shape.cache_type.size());
    let piece = |part: u32, token: u32, heads: Range<u32>| {
        let before = (u64::from(part) * u64::from(tokens) + u64::from(token)) * u64::from(all);
        (before + u64::from(heads.start)) * element..(before + u64::from(heads.end)) * element
    };
    let mut pieces = Vec::new();
    for part in 0..parts {
        match shape.head_order {
            HeadOrder::Nhd => pieces.extend((0..tokens).map(|token| piece(part, token, heads.clone()))),
            HeadOrder::Hnd => {
                let each = |head| (0..tokens).map(move |token| (head, token));
                pieces.extend(
                    heads.clone().flat_map(each).map(|(head, token)| piece(part, token, head..head + 1)),
                );
            }
        }
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use crate::sides::{Rank, Role};
    use clap::Parser;

    const OWNER: Owner = Owner::Request { layer: 2, block: 7 };

    fn block(flags: &str, role: Role, number: u32) -> (Blocks, Vec<u8>) {
        let line = format!("kvcache_transfer --block 4 {flags}");
        let args = Args::parse_from(line.split_whitespace());
        let request = args.request(Rank { role, number }).unwrap();
        let blocks = Blocks::new(&request, 42).unwrap();
        let mut bytes = vec![0; request.layout.layer_block_bytes() as usize];
        blocks.fill(OWNER, &mut bytes);
        assert_eq!(blocks.wrong(OWNER, &bytes), 0);
        (blocks, bytes)
    }

    /// The bytes of (part, token, head) of eight heads of four tokens.
    fn element(whole: &[u8], part: usize, token: usize, head: usize) -> &[u8] {
        &whole[((part * 4 + token) * 8 + head) * 256..][..256]
    }

    #[test]
    fn ranks_have_their_heads_of_the_same_block_in_their_order() {
        let (_, whole) = block("", Role::Decode, 0);
        let mut expected = vec![0; whole.len()];
        Content::new(42).fill(OWNER, 0, &mut expected);
        assert_eq!(whole, expected, "one rank has the content as it is");
        for rank in 0..4 {
            let flags = "--tp 4:2 --head-order nhd:hnd";
            let (_, bytes) = block(flags, Role::Prefill, rank);
            for (part, token, head) in each() {
                let of = head.checked_sub(2 * rank as usize).filter(|head| *head < 2);
                let Some(own) = of.map(|own| &bytes[((part * 4 + token) * 2 + own) * 256..][..256]) else {
                    continue;
                };
                assert_eq!(own, element(&whole, part, token, head));
            }
            let (_, bytes) = block(flags, Role::Decode, rank % 2);
            for (part, token, head) in each() {
                let of = head.checked_sub(4 * (rank as usize % 2)).filter(|head| *head < 4);
                let Some(own) = of.map(|own| &bytes[((part * 4 + own) * 4 + token) * 256..][..256]) else {
                    continue;
                };
                assert_eq!(own, element(&whole, part, token, head));
            }
        }
    }

    fn each() -> impl Iterator<Item = (usize, usize, usize)> {
        (0..2).flat_map(|part| (0..4).flat_map(move |token| (0..8).map(move |head| (part, token, head))))
    }

    #[test]
    fn heads_in_the_wrong_place_are_seen() {
        let (blocks, mut bytes) = block("--head-order hnd", Role::Decode, 0);
        let (one, other) = bytes.split_at_mut(256);
        one.swap_with_slice(&mut other[..256]);
        assert!(blocks.wrong(OWNER, &bytes) > 256);
        assert_eq!(blocks.wrong(OWNER, &[]), 0);
    }
}
