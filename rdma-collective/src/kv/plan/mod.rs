//! Plans: from the blocks of a request to the writes that carry them.
//!
//! Plans own which bytes go where, and in how few writes. Posting writes and counting their arrival belong to `push`
//! and `receive`.

mod blocks;
mod coalesce;
mod error;
#[cfg(any(fuzzing, test))]
#[path = "tests/fuzz.rs"]
mod fuzz;
mod parts;

pub use blocks::{BlockPair, BlockPlan};
pub(in crate::kv) use blocks::{Descriptors, PlanOptions};
pub use error::PlanError;
#[cfg(any(fuzzing, test))]
pub(crate) use fuzz::fuzz;
pub(in crate::kv) use parts::{Wanted, pairs, parts_of, words_of};

/// A write of a plan: bytes of the source pool, and their offset in the destination pool.
///
/// Offsets count from the start of each pool; only the link knows the remote address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WriteDescriptor {
    /// First byte in the source pool.
    pub offset_local: u64,
    /// First byte in the destination pool.
    pub offset_remote: u64,
    /// Length in bytes; never 0 in a plan, and never more than the plan's bound.
    pub len: u64,
}
