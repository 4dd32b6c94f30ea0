//! `cargo xtask metrics-cost`: the row "metrics on against off". One program is built with the feature `metrics` and
//! without it; callgrind counts the instructions of each, and both are timed in turns. The recorder of the program does
//! as little as a recorder can, so that the difference is the libraries' own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;

use crate::callgrind::{self, Counted, Program};
use crate::checkout::{self, Checkout};
use crate::workspace;

/// Source of the program.
const PROGRAM: &str = include_str!("program.rs.in");
/// The rest of it with metrics, and without.
const RECORDER: &str = include_str!("recorder.rs.in");
const NO_RECORDER: &str = "\nfn install() {}\n";
/// Ratio of instructions up to which metrics count as cheap.
const INSTRUCTIONS_TO: f64 = 1.02;
/// Ratio of speeds, on to off, down to which metrics count as cheap.
const SPEED_FROM: f64 = 0.95;
/// Runs whose instructions are counted, and rounds of each.
const COUNTED_RUNS: usize = 3;
const COUNTED_ROUNDS: usize = 100;
/// Rounds of a timed run, of which the fastest counts.
const TIMED_ROUNDS: usize = 5;
/// Rows of the table.
const CALLS: [Call; 2] = [
    Call { name: "all-reduce", function: "all_reduces", bytes: 8, counted: 128, timed: 20_000 },
    Call { name: "write", function: "writes", bytes: 4096, counted: 64, timed: 50_000 },
];

/// Options of `cargo xtask metrics-cost`.
#[derive(Debug, Parser)]
pub struct Args {
    /// Pairs of timed runs; 0 counts instructions alone.
    #[arg(long, default_value_t = 9)]
    pairs: usize,
}

/// A row: what the program is asked for.
#[derive(Debug, Clone, Copy)]
struct Call {
    name: &'static str,
    /// The function of the program that makes the calls of a round.
    function: &'static str,
    bytes: usize,
    /// Calls of a round under callgrind: a multiple of the operations that are counted together.
    counted: usize,
    /// Calls of a timed round.
    timed: usize,
}

/// Builds both programs, prints the table, and fails where metrics cost too much.
pub fn main(args: &Args) -> Result<()> {
    let folder = workspace::target()?.join("metrics-cost");
    let tree = checkout::working(&workspace::root()?, &folder)?;
    let programs = [("metrics-off", "", NO_RECORDER), ("metrics-on", "\"metrics\"", RECORDER)];
    let mut built = Vec::new();
    for (name, features, rest) in programs {
        let libraries = &["rdma-core", "rdma-collective"];
        let sources = &[format!("{PROGRAM}{rest}")];
        built.push(
            Program { name, libraries, features, sources, profile: "release", settings: "" }.build(&tree)?,
        );
    }
    let [off, on] = built.as_slice() else { bail!("two programs were built") };
    println!("{:<11} {:>6} {:>12} {:>12} {:>7} {:>7}", "call", "bytes", "off", "on", "ratio", "speed");
    let mut worse = Vec::new();
    for call in CALLS {
        let [before, now] = [call.instructions(&tree, off)?, call.instructions(&tree, on)?];
        let (ratio, speed) = (now / before, call.speed(off, on, args.pairs)?);
        let shown = speed.map_or_else(|| "-".to_owned(), |speed| format!("{speed:.3}"));
        println!("{:<11} {:>6} {before:>12.1} {now:>12.1} {ratio:>7.4} {shown:>7}", call.name, call.bytes);
        if ratio > INSTRUCTIONS_TO {
            worse.push(format!("{} takes {ratio:.4} times the instructions", call.name));
        }
        if speed.is_some_and(|speed| speed < SPEED_FROM) {
            worse.push(format!("{} has {shown} times the speed", call.name));
        }
    }
    ensure!(worse.is_empty(), "metrics cost too much: {}", worse.join(", "));
    Ok(())
}

impl Call {
    fn arguments(&self, rounds: usize, calls: usize) -> Vec<String> {
        let numbers = [self.bytes, rounds, calls].map(|number| number.to_string());
        [&[self.name.to_owned()], &numbers[..]].concat()
    }

    /// Instructions of one call: of each function those of the round in which it took the fewest. An all-reduce asks
    /// until the peer's part has come, and such a round had to ask least.
    fn instructions(&self, tree: &Checkout, program: &Path) -> Result<f64> {
        // The warm-up of `writes` is a call of it too.
        let warm_up = usize::from(self.name == "write");
        let calls = warm_up + COUNTED_ROUNDS;
        let counted = Counted { inside: Some(self.function), each: self.function, calls };
        let arguments = self.arguments(COUNTED_ROUNDS, self.counted);
        let mut rounds = Vec::new();
        for _ in 0..COUNTED_RUNS {
            let dumps = callgrind::run(tree, program, &arguments, counted)?;
            rounds.extend(dumps.iter().skip(warm_up).map(|dump| callgrind::costs(dump)));
        }
        let functions: BTreeSet<_> = rounds.iter().flat_map(BTreeMap::keys).collect();
        let fewest = |function: &&String| {
            rounds.iter().map(|round| round.get(*function).copied().unwrap_or_default()).min()
        };
        let sum: u64 = functions.iter().filter_map(fewest).sum();
        Ok(sum as f64 / self.counted as f64)
    }

    /// The speed with metrics as a part of that without: the median of pairs of runs, which take turns in going first.
    fn speed(&self, off: &Path, on: &Path, pairs: usize) -> Result<Option<f64>> {
        let mut ratios = Vec::with_capacity(pairs);
        for pair in 0..pairs {
            let (without, with) = if pair % 2 == 0 {
                let without = self.nanoseconds(off)?;
                (without, self.nanoseconds(on)?)
            } else {
                let with = self.nanoseconds(on)?;
                (self.nanoseconds(off)?, with)
            };
            ratios.push(without / with);
        }
        ratios.sort_unstable_by(f64::total_cmp);
        Ok(ratios.get(pairs / 2).copied())
    }

    /// Nanoseconds of a call in the best round of a run: whatever disturbs a round makes it slower.
    fn nanoseconds(&self, program: &Path) -> Result<f64> {
        let output = Command::new(program).args(self.arguments(TIMED_ROUNDS, self.timed)).output()?;
        ensure!(output.status.success(), "the program failed: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout)?;
        let rounds = text.lines().filter_map(|line| line.parse::<f64>().ok());
        rounds.min_by(f64::total_cmp).context("the program printed no time")
    }
}
