//! Ratios of one run: what we do beside what people would use instead.
//!
//! Timings of a machine drift, so each row interleaves pairs (ours, theirs, ours, …) and tells the
//! median of the pairs' ratios. [`RESULTS.md`](../RESULTS.md) keeps the figures with their commands.

pub mod blocks;
pub mod collectives;
pub mod pair;
pub mod peers;
pub mod plain;
pub mod preparing;
pub mod programs;
pub mod ratio;
pub mod samples;
pub mod soft;
pub mod turns;
pub mod ucx;
pub mod windows;
