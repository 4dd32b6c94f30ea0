//! From the blocks of a request to the writes that carry them.
//!
//! Owns which bytes go where and in how few writes; posting them and counting their arrival is the push's.

mod blocks;
mod coalesce;
mod error;
#[cfg(any(fuzzing, test))]
#[path = "tests/fuzz.rs"]
mod fuzz;
mod parts;

pub use blocks::{BlockPair, BlockPlan};
pub(in crate::kv) use blocks::{Descriptors, Parts};
pub use error::PlanError;
#[cfg(any(fuzzing, test))]
pub(crate) use fuzz::fuzz;
pub(in crate::kv) use parts::{Wanted, pairs, parts_of, words_of};

/// One write: bytes of the source pool and where they go in the destination pool.
///
/// Offsets are from the start of each pool; a remote address is known to the link alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WriteDescriptor {
    /// Where the bytes start in the source pool.
    pub offset_local: u64,
    /// Where they go in the destination pool.
    pub offset_remote: u64,
    /// How many they are; never 0 in a plan, never more than its bound.
    pub len: u64,
}
