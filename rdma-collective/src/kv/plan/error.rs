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
    /// A block is listed twice.
    #[error("{side} block {block} is given twice; give each block of a request once")]
    BlockRepeated {
        /// The pool.
        side: Side,
        /// The block.
        block: u32,
    },
}
