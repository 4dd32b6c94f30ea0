//! Ratios of one run: what we do beside what people would use instead.
//!
//! Timings of a machine drift, so each row interleaves pairs (ours, theirs, ours, …) and tells the
//! median of the pairs' ratios. With `--save` a bench writes its rows to `benches/results`, of which
//! [`RESULTS.md`](../RESULTS.md) is made.

pub mod blocks;
pub mod collectives;
pub mod ends;
pub mod footprint;
pub mod kv;
pub mod nodes;
pub mod only;
pub mod pair;
pub mod peers;
pub mod plain;
pub mod preparing;
pub mod programs;
pub mod rails;
pub mod ranks;
pub mod ratio;
pub mod report;
pub mod samples;
pub mod servers;
pub mod soft;
pub mod turns;
pub mod ucx;
pub mod windows;
