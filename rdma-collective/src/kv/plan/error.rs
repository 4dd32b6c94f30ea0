//! Errors of planning a transfer.

use crate::kv::layout::{LayoutError, Side};

/// Why there is no plan for a transfer; nothing of it was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The pools do not match.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// No block is asked for.
    #[error("the request has no blocks; leave it out, or give it at least one")]
    NoBlocks,
    /// No write may have a byte.
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
    /// A block is given twice.
    #[error("{side} block {block} is given twice; give each block of a request once")]
    BlockRepeated {
        /// The pool.
        side: Side,
        /// The block.
        block: u32,
    },
    /// A write has no bytes.
    #[error("write {index} has no bytes; leave it out")]
    Empty {
        /// Its place in the list.
        index: usize,
    },
    /// The end of a write is beyond what 64 bits can say.
    #[error("write {index} of {len} bytes at {side} offset {offset} wraps around; check how it was made")]
    Wraps {
        /// The memory.
        side: Side,
        /// Its place in the list.
        index: usize,
        /// Where it starts.
        offset: u64,
        /// Its length.
        len: u64,
    },
    /// A write ends beyond the memory.
    #[error("write {index} ends at {side} byte {end} of {memory}; keep it within the memory")]
    OutOfRange {
        /// The memory.
        side: Side,
        /// Its place in the list.
        index: usize,
        /// Where it ends.
        end: u64,
        /// Bytes of the memory.
        memory: u64,
    },
    /// Two writes have a byte of the destination in common.
    #[error("writes {first} and {second} overlap at the destination; write each byte once")]
    Overlap {
        /// The place of one in the list.
        first: usize,
        /// The place of the other, which comes later.
        second: usize,
    },
}
