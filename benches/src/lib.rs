//! Ratios of one run: what we do beside what people would use instead.
//!
//! Timings of a machine drift, so each row interleaves pairs (ours, theirs, ours, …) and tells the
//! median of the pairs' ratios. With `--save` a bench writes its rows to `benches/results`, of which
//! [`RESULTS.md`](../RESULTS.md) is made.

use std::fmt::Display;
use std::process::ExitCode;

use clap::Parser;

pub mod blocks;
pub mod collectives;
pub mod ends;
pub mod footprint;
pub mod kv;
pub mod nics;
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

/// All of a bench that has this name: reads its options and runs. Exit status 1 when a row is not within its bound, 2
/// when the bench has failed.
pub fn main<A: Parser, E: Display>(name: &str, run: impl FnOnce(&A) -> Result<bool, E>) -> ExitCode {
    match run(&A::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::from(2)
        }
    }
}
