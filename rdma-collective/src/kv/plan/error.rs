//! Errors of planning a transfer.

use crate::kv::layout::{LayoutError, Side};

/// The reason why there is no plan for a transfer; nothing was moved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
    /// A block is listed twice.
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
        /// Index in the list.
        index: usize,
    },
    /// The end of a write is beyond what 64 bits can say.
    #[error("write {index} of {len} bytes at {side} offset {offset} wraps around; check how it was made")]
    Wraps {
        /// The side whose offset wraps.
        side: Side,
        /// Index in the list.
        index: usize,
        /// First byte of the write.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A write ends beyond the memory.
    #[error("write {index} ends at {side} byte {end} of {memory}; keep it within the memory")]
    OutOfRange {
        /// The side whose memory is too short.
        side: Side,
        /// Index in the list.
        index: usize,
        /// End of the write, exclusive.
        end: u64,
        /// Bytes of the memory.
        memory: u64,
    },
    /// Two writes have a byte of the destination in common.
    #[error("writes {first} and {second} overlap at the destination; write each byte once")]
    Overlap {
        /// Index of the first write in the list.
        first: usize,
        /// Index of the second write in the list.
        second: usize,
    },
}
