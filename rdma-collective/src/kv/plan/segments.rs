//! Segments: the tokens of a request, in stretches that lie in one block at either side.

use std::ops::Range;

use crate::kv::layout::{Layout, Side};
use crate::kv::plan::PlanError;

/// Tokens that lie in one block of the source and in one of the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// The block of the group, at either side.
    pub(super) blocks: [u32; 2],
    /// The first token in that block.
    pub(super) first: [u32; 2],
    pub(super) tokens: u32,
    /// Position of the block in the list of each side.
    pub(super) places: [u32; 2],
}

/// The tokens of a group that a request moves, counted from the first block of each list.
///
/// Without it a request moves all tokens of all blocks, and both lists have equally many. A part of
/// [`PlanOptions`](super::PlanOptions), for a plan over a [`Route`](super::Route).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tokens {
    /// Tokens of the first source block that are left out: below the tokens of a block.
    pub source_skip: u32,
    /// Tokens of the first destination block that are left out: below the tokens of a block.
    pub destination_skip: u32,
    /// Tokens to move. They end in the last block of either list; 0 in a group without blocks.
    pub count: u32,
}

/// The blocks of one side that belong to one group, as (block of the group, position in the list).
pub(super) fn of_group(layout: &Layout, group: usize, list: &[u32]) -> Vec<(u32, u32)> {
    let first = layout.placed().get(group).map_or(0, |placed| placed.first_block);
    let blocks =
        list.iter().zip(0..).filter(|(block, _)| layout.group_of(**block).is_some_and(|of| of.0 == group));
    blocks.map(|(block, place)| (block - first, place)).collect()
}

/// Cuts the tokens of a group into segments, in the order of the source's memory. `each` are the tokens a block.
pub(super) fn cut(
    group: usize,
    lists: [&[(u32, u32)]; 2],
    each: [u32; 2],
    tokens: Option<&Tokens>,
) -> Result<Vec<Segment>, PlanError> {
    let all: [u64; 2] = [0, 1].map(|side| lists[side].len() as u64 * u64::from(each[side]));
    let (skip, count) = match tokens {
        None if all[0] == all[1] => ([0; 2], all[0]),
        None => {
            return Err(PlanError::TokenCounts { group, source_tokens: all[0], destination_tokens: all[1] });
        }
        Some(tokens) => ([tokens.source_skip, tokens.destination_skip], u64::from(tokens.count)),
    };
    if tokens.is_some() {
        check_range(group, (skip, count), all, each)?;
    }
    let mut segments = Vec::new();
    let mut done = 0;
    while done < count {
        let at = skip.map(|skip| u64::from(skip) + done);
        let block = |side: usize| lists[side].get((at[side] / u64::from(each[side])) as usize).copied();
        let (Some(source), Some(destination)) = (block(0), block(1)) else { break };
        let first = [0, 1].map(|side| (at[side] % u64::from(each[side])) as u32);
        let left = [0, 1].map(|side| u64::from(each[side] - first[side]));
        let tokens = left[0].min(left[1]).min(count - done);
        done += tokens;
        let (blocks, places) = ([source.0, destination.0], [source.1, destination.1]);
        segments.push(Segment { blocks, first, tokens: tokens as u32, places });
    }
    segments.sort_unstable_by_key(|segment| (segment.blocks[0], segment.first[0]));
    Ok(segments)
}

/// Fails unless the range fits the blocks of either list.
fn check_range(
    group: usize,
    (skip, count): ([u32; 2], u64),
    all: [u64; 2],
    each: [u32; 2],
) -> Result<(), PlanError> {
    for (at, side) in [Side::Source, Side::Destination].into_iter().enumerate() {
        let (first, tokens) = (u64::from(skip[at]), all[at]);
        let end = first + count;
        if !fits(first..end, tokens, each[at]) {
            return Err(PlanError::TokenRange { side, group, first, end, tokens, each: each[at] });
        }
    }
    Ok(())
}

/// Whether a range begins in the first block and ends in the last, of blocks that have `tokens` in all and `each` in
/// one. The range of no blocks is 0..0.
pub(in crate::kv) fn fits(range: Range<u64>, tokens: u64, each: u32) -> bool {
    let each = u64::from(each);
    match tokens {
        0 => range == (0..0),
        _ => range.start < range.end.min(each) && range.end <= tokens && range.end + each > tokens,
    }
}
