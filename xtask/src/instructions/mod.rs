//! `cargo xtask instructions`: the instructions of a post and its poll on each wire of the software device, counted by
//! callgrind. Counts do not depend on what else the machine does, so that they show a change of 1 % where times cannot.
//! Both trees run the same release program against their public API.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};
use clap::Parser;

use crate::callgrind::{self, Counted, Program};
use crate::checkout::{self, Checkout};
use crate::workspace;

/// Source of the program.
const PROGRAM: &str = include_str!("program.rs.in");
/// Ratio up to which the working tree counts as no slower: more than the noise of a wire.
const HOLDS_TO: f64 = 1.02;
/// Instructions per function below which `--list` leaves a difference out.
const LISTED_FROM: f64 = 0.5;
/// Program's functions that post and poll.
const COUNTED: &str = "counted_*";
/// Rows of the table.
const WIRES: [Wire; 4] = [
    Wire {
        title: "local",
        wire: "local",
        inside: Some(COUNTED),
        runs: 1,
        rounds: 5,
        pairs: 200,
        pause_us: 0,
    },
    Wire {
        title: "mapped",
        wire: "mapped",
        inside: Some(COUNTED),
        runs: 1,
        rounds: 5,
        pairs: 200,
        pause_us: 0,
    },
    // In the pause the device's thread takes the acknowledgement, so that one poll finds the completion. Several runs,
    // because the C library's copy depends on where the kernel has put the memory.
    Wire { title: "tcp", wire: "tcp", inside: Some(COUNTED), runs: 7, rounds: 9, pairs: 10, pause_us: 2000 },
    Wire { title: "tcp-all", wire: "tcp", inside: None, runs: 7, rounds: 9, pairs: 20, pause_us: 2000 },
];

/// Options of `cargo xtask instructions`.
#[derive(Debug, Parser)]
pub struct Args {
    /// Revision to compare with.
    revision: String,
    /// Print the functions whose instructions differ.
    #[arg(long)]
    list: bool,
    /// Bytes of the writes.
    #[arg(long, value_delimiter = ',', default_value = "8,4096")]
    bytes: Vec<usize>,
    /// Rows to count, all by default: a wire, or `tcp-all`, with the device's own thread.
    #[arg(long, value_delimiter = ',', value_parser = WIRES.map(|wire| wire.title))]
    wires: Vec<String>,
}

/// Wire of the software device, and how it is counted.
#[derive(Debug, Clone, Copy)]
struct Wire {
    title: &'static str,
    /// Name that the program knows.
    wire: &'static str,
    /// Functions of the posting thread that count; `None` if all of the process counts.
    inside: Option<&'static str>,
    /// Runs of the program.
    runs: usize,
    /// Rounds of each size in a run. The median of all runs counts.
    rounds: usize,
    /// Posts and polls of a round.
    pairs: usize,
    /// Pause between a post and its poll, in microseconds.
    pause_us: usize,
}

/// Instructions of one post and poll.
#[derive(Debug, Clone, PartialEq)]
struct Count {
    /// Instructions in the median round.
    median: f64,
    /// Distance of the quartiles, as a part of the median.
    spread: f64,
    /// Instructions of each function in the median round.
    functions: BTreeMap<String, f64>,
}

/// Counts both trees, and fails where the working tree needs more than [`HOLDS_TO`] allows.
pub fn main(args: &Args) -> Result<()> {
    let root = workspace::root()?;
    let folder = workspace::target()?.join("instructions");
    let trees = [checkout::revision(&root, &args.revision, &folder)?, checkout::working(&root, &folder)?];
    let program = Program {
        name: "instructions",
        libraries: &["rdma-core"],
        features: "",
        sources: &[PROGRAM.to_owned()],
        profile: "release",
        settings: "",
    };
    let [before, now] = [program.build(&trees[0])?, program.build(&trees[1])?];
    println!(
        "{:<7} {:>6} {:>12} {:>12} {:>7} {:>14}",
        "wire", "bytes", trees[0].title, trees[1].title, "ratio", "quartiles"
    );
    let mut worse = Vec::new();
    for wire in
        WIRES.iter().filter(|wire| args.wires.is_empty() || args.wires.iter().any(|name| name == wire.title))
    {
        let before = wire.count(&trees[0], &before, &args.bytes)?;
        let now = wire.count(&trees[1], &now, &args.bytes)?;
        for (bytes, (before, now)) in args.bytes.iter().zip(before.iter().zip(&now)) {
            let ratio = now.median / before.median;
            println!(
                "{:<7} {bytes:>6} {:>12.1} {:>12.1} {ratio:>7.4} {:>6.1}% {:>6.1}%",
                wire.title,
                before.median,
                now.median,
                100.0 * before.spread,
                100.0 * now.spread
            );
            if args.list {
                print_differences(before, now);
            }
            if ratio > HOLDS_TO {
                worse.push(format!("{} {bytes} B: {ratio:.4}", wire.title));
            }
        }
    }
    if !worse.is_empty() {
        bail!("more than {HOLDS_TO} times the instructions of {}: {}", trees[0].title, worse.join(", "));
    }
    Ok(())
}

impl Wire {
    /// Counts writes of each length.
    fn count(&self, tree: &Checkout, program: &Path, bytes: &[usize]) -> Result<Vec<Count>> {
        let mut arguments = vec![self.wire.to_owned(), "post".to_owned()];
        let numbers = [self.rounds, self.pairs, self.pause_us];
        arguments.extend(numbers.iter().chain(bytes).map(usize::to_string));
        let calls = self.rounds * bytes.len();
        let counted = Counted { inside: self.inside, each: "round_of_pairs", calls };
        let mut rounds = vec![Vec::new(); bytes.len()];
        for _ in 0..self.runs {
            let dumps = callgrind::run(tree, program, &arguments, counted)?;
            for (rounds, dumps) in rounds.iter_mut().zip(dumps.chunks(self.rounds)) {
                rounds.extend(dumps.iter().map(|dump| callgrind::costs(dump)));
            }
        }
        Ok(rounds.iter().map(|rounds| Count::new(rounds, self.pairs)).collect())
    }
}

impl Count {
    /// Count of rounds of so many posts and polls each.
    fn new(rounds: &[BTreeMap<String, u64>], pairs: usize) -> Self {
        let mut rounds: Vec<_> = rounds.iter().map(|round| (round.values().sum::<u64>(), round)).collect();
        rounds.sort_by_key(|(sum, _)| *sum);
        let a_pair = |count: u64| count as f64 / pairs as f64;
        let [low, (sum, functions), high] = [1, 2, 3].map(|quarter| rounds[quarter * rounds.len() / 4]);
        Self {
            median: a_pair(sum),
            spread: (high.0 - low.0) as f64 / sum as f64,
            functions: functions.iter().map(|(name, count)| (name.clone(), a_pair(*count))).collect(),
        }
    }
}

fn print_differences(before: &Count, now: &Count) {
    let names: Vec<_> = before.functions.keys().chain(now.functions.keys()).collect();
    let of = |count: &Count, name: &str| count.functions.get(name).copied().unwrap_or_default();
    let mut rows: Vec<_> = names.iter().map(|name| (of(before, name), of(now, name), *name)).collect();
    rows.retain(|(before, now, _)| (now - before).abs() >= LISTED_FROM);
    rows.sort_by(|a, b| (b.1 - b.0).total_cmp(&(a.1 - a.0)).then(a.2.cmp(b.2)));
    rows.dedup();
    for (before, now, name) in rows {
        println!("        {:>+8.1} {before:>10.1} {now:>10.1}  {name}", now - before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_round_counts() {
        let round = |count| BTreeMap::from([("f".to_owned(), count), ("g".to_owned(), 10)]);
        let rounds = [10, 990, 30, 20, 40].map(round);
        let count = Count::new(&rounds, 2);
        assert_eq!((count.median, count.functions["f"]), (20.0, 15.0));
        assert_eq!(count.spread, 0.5);
    }
}
