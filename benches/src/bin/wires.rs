//! All-reduce on the mapped wire beside the same over TCP, at every size: more ranks than cores are where threads that
//! wait could take the cores from those that have something to do.
//!
//! `cargo run --release -p benches --bin wires`, with `allreduce` built beside it.

use std::process::ExitCode;

use benches::programs::all_reduce_times;
use benches::ratio::{Bound, HEAD, Row};
use benches::report::{Report, SaveArgs};
use benches::soft::Outcome as Result;
use clap::Parser;

/// From which size on there are fewer iterations.
const LARGE: u64 = 128 << 10;
const SIZES: (u64, u64) = (8, 64 << 20);

/// Ratios of all-reduce in one run.
#[derive(Parser)]
struct Args {
    /// Interleaved pairs; each is one run of all sizes on either wire.
    #[arg(long, default_value_t = 7)]
    pairs: usize,
    /// Ranks, each a process.
    #[arg(long, default_value_t = 4)]
    ranks: u32,
    /// Iterations of sizes below 128 KiB.
    #[arg(long, default_value_t = 200)]
    small: u32,
    /// Iterations of the others.
    #[arg(long, default_value_t = 10)]
    large: u32,
    #[command(flatten)]
    save: SaveArgs,
}

fn main() -> ExitCode {
    benches::main("wires", compare)
}

fn compare(args: &Args) -> Result<bool> {
    let mut rows: Vec<Row> = Vec::new();
    for turn in 0..args.pairs {
        let (ours, theirs) = if turn % 2 == 0 {
            let ours = args.times("mapped")?;
            (ours, args.times("tcp")?)
        } else {
            let theirs = args.times("tcp")?;
            (args.times("mapped")?, theirs)
        };
        let pairs = ours.into_iter().zip(theirs);
        if rows.is_empty() {
            rows = pairs.map(|((bytes, ours), (_, theirs))| args.row(bytes, (ours, theirs))).collect();
        } else {
            pairs.zip(&mut rows).for_each(|(((_, ours), (_, theirs)), row)| row.pairs.push((ours, theirs)));
        }
    }
    println!("{HEAD}");
    let mut report = Report::default();
    let all_hold = rows.iter().fold(true, |all_hold, row| report.row(row) & all_hold);
    report.save(&args.save, "wires")?;
    Ok(all_hold)
}

impl Args {
    /// Microseconds at each size.
    fn times(&self, wire: &str) -> Result<Vec<(u64, f64)>> {
        let arguments = ["--device", "soft", "--wire", wire].map(str::to_owned);
        let (first, last) = SIZES;
        let mut times = all_reduce_times(&arguments, self.ranks, (first, LARGE / 2), self.small)?;
        times.extend(all_reduce_times(&arguments, self.ranks, (LARGE, last), self.large)?);
        Ok(times)
    }

    fn row(&self, bytes: u64, pair: (f64, f64)) -> Row {
        let size = if bytes < 1 << 10 { format!("{bytes} B") } else { format!("{} KiB", bytes >> 10) };
        let name = format!("all-reduce, {} ranks, {size}, mapped against TCP", self.ranks);
        Row { name, unit: "us", bound: Bound::AtMost(1.0), pairs: vec![pair] }
    }
}
