//! Errors of planning a transfer: blocks that cannot be moved from one pool to the other.

use crate::kv::layout::{LayoutError, Side};

/// The reason why a transfer has no plan; no byte was moved.
///
/// A part of [`KvError`](crate::kv::KvError).
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The layouts of the pools do not match.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The request has no block.
    #[error("the request has no blocks; leave it out, or give it at least one")]
    NoBlocks,
    /// The bound on the bytes of a write is 0.
    #[error("writes of at most 0 bytes move nothing; allow at least 1")]
    BoundZero,
    /// A block is not one of its pool's.
    #[error("{side} block {block} is not one of {blocks}; blocks count from 0")]
    BlockOutOfRange {
        /// The pool.
        side: Side,
        /// The block asked for.
        block: u32,
        /// Blocks of the pool.
        blocks: u32,
    },
    /// A block is listed twice, or with the block of another group that has the same memory.
    #[error("{side} block {block} is given twice; give each block of a request once, and to one group")]
    BlockRepeated {
        /// The pool.
        side: Side,
        /// The block.
        block: u32,
    },
    /// A block that decode is said to have is not in its list.
    #[error("decode is said to have block {block}, which is not in its list; name blocks of the list alone")]
    HadNotListed {
        /// The block.
        block: u32,
    },
    /// Prefill names blocks that decode has.
    #[error(
        "prefill names block {block} as one that decode has; name such blocks in the grant or the pull, which tells prefill"
    )]
    HadAtSource {
        /// The first of the blocks.
        block: u32,
    },
    /// The lists have different numbers of tokens.
    #[error(
        "the source blocks of group {group} hold {source_tokens} tokens, the destination blocks \
         {destination_tokens}; give lists of equally many, or a token range"
    )]
    TokenCounts {
        /// The group.
        group: usize,
        /// Tokens of all source blocks.
        source_tokens: u64,
        /// Tokens of all destination blocks.
        destination_tokens: u64,
    },
    /// The number of token ranges is not that of the groups.
    #[error("{ranges} token ranges for a layout of {groups} groups; give a range for each group, or none")]
    TokenRanges {
        /// Ranges that were given.
        ranges: usize,
        /// Groups of the layout.
        groups: usize,
    },
    /// A token range does not begin in the first block and end in the last.
    #[error(
        "tokens {first} to {end} of group {group} do not fit {tokens} tokens of {side} blocks of {each}; begin in the \
         first block and end in the last"
    )]
    TokenRange {
        /// The pool.
        side: Side,
        /// The group.
        group: usize,
        /// The first token, counted from the start of the first block.
        first: u64,
        /// The token after the last.
        end: u64,
        /// Tokens of all blocks.
        tokens: u64,
        /// Tokens of one block.
        each: u32,
    },
}
