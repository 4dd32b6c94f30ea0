//! `cargo xtask compare`: speed of the working tree beside a revision, row by row of benches/RESULTS.md. Both trees'
//! programs run in turns on the same machine, and the revision runs twice a turn, so that the noise is known. Other
//! libraries are not measured here: `benches` does that.

mod rows;
mod verdict;

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;

use self::rows::{Row, Source};
use self::verdict::{Turn, Verdict};
use crate::cargo::{self, Executable};
use crate::process::{self, Group};
use crate::{checkout, workspace};

/// Longest single run of a program.
const RUN_LIMIT: Duration = Duration::from_secs(120);
/// Longest that the side which only answers may need to end after the other one has.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Options of `cargo xtask compare`.
#[derive(Debug, Parser)]
pub struct Args {
    /// Revision to compare the working tree with.
    #[arg(required_unless_present = "list")]
    revision: Option<String>,
    /// Only rows whose names contain this; may be given more than once.
    #[arg(long)]
    only: Vec<String>,
    /// Turns a row; in each the revision runs, the working tree, and the revision again.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Minutes after which no further row is begun.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Print the names of the rows.
    #[arg(long)]
    list: bool,
}

/// Programs of one tree by name.
type Programs = BTreeMap<String, Executable>;

/// Measures the rows; fails when one does not hold or was not measured.
pub fn main(args: &Args) -> Result<()> {
    let rows: Vec<Row> = rows::all().into_iter().filter(|row| is_chosen(&row.name, &args.only)).collect();
    let Some(revision) = args.revision.as_ref().filter(|_| !args.list) else {
        rows.iter().for_each(|row| println!("{}", row.name));
        return Ok(());
    };
    if rows.is_empty() {
        bail!("no row has such a name: see `cargo xtask compare --list`");
    }
    let root = workspace::root()?;
    let folder = workspace::target()?.join("compare");
    let tree = checkout::revision(&root, revision, &folder)?;
    println!("building {}, then the working tree", tree.title);
    let before = build(&tree.root, Some(&tree.build))?;
    let now = build(&root, None)?;
    let session = Session { before, now, folder };
    let deadline = Instant::now() + Duration::from_secs(args.minutes * 60);
    println!("\n| row | {} | now | ratio | noise | |\n|---|---|---|---|---|---|", tree.title);
    let (mut slower, mut missing) = (0, 0);
    for row in &rows {
        match session.measure(row, args.pairs, deadline) {
            Ok(verdict) => {
                println!("{}", line(row, &verdict));
                slower += usize::from(!verdict.holds());
            }
            Err(error) => {
                println!("| {} | | | not measured: {error:#} | | |", row.name);
                missing += 1;
            }
        }
        if process::interrupted() {
            bail!("interrupted");
        }
    }
    if slower + missing > 0 {
        bail!("of {} rows {slower} do not hold and {missing} were not measured", rows.len());
    }
    Ok(())
}

fn is_chosen(name: &str, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|part| name.contains(part))
}

/// Line of the table.
fn line(row: &Row, verdict: &Verdict) -> String {
    let (low, high) = verdict.range;
    format!(
        "| {} | {:.3} {unit} | {:.3} {unit} | {:.3} ({low:.3}-{high:.3}) | {:.3} | {} |",
        row.name,
        verdict.before,
        verdict.now,
        verdict.ratio,
        verdict.noise,
        if verdict.holds() { "holds" } else { "DOES NOT HOLD" },
        unit = row.unit
    )
}

/// Builds the programs of the tree at `root`, with the profile that users build with.
fn build(root: &Path, target: Option<&Path>) -> Result<Programs> {
    let mut command =
        cargo::cargo(&["build", "--release", "--locked", "-p", "examples", "-p", "benches", "--bins"])?;
    command.current_dir(root);
    if let Some(target) = target {
        command.env("CARGO_TARGET_DIR", target);
    }
    let programs = cargo::build(&mut command)?;
    Ok(programs.into_iter().map(|program| (program.name.clone(), program)).collect())
}

/// Both trees' programs, and the folder for what they print.
struct Session {
    before: Programs,
    now: Programs,
    folder: std::path::PathBuf,
}

/// Tree and share of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    Now,
    Again,
}

/// Order of a turn's runs. It rotates, because whoever runs first may find caches and clocks that others left.
fn order(turn: u32) -> [Side; 3] {
    let mut sides = [Side::Before, Side::Now, Side::Again];
    sides.rotate_left(turn as usize % 3);
    sides
}

impl Session {
    fn measure(&self, row: &Row, pairs: u32, deadline: Instant) -> Result<Verdict> {
        let mut turns = Vec::new();
        for turn in 0..pairs {
            if Instant::now() >= deadline {
                bail!("no time is left after {turn} turns");
            }
            let mut figures = Turn { before: f64::NAN, now: f64::NAN, again: f64::NAN };
            for side in order(turn) {
                let (programs, figure) = match side {
                    Side::Before => (&self.before, &mut figures.before),
                    Side::Now => (&self.now, &mut figures.now),
                    Side::Again => (&self.before, &mut figures.again),
                };
                *figure = self.run(row, programs).with_context(|| format!("{side:?}"))?;
            }
            turns.push(figures);
        }
        Ok(Verdict::new(&turns, row.better))
    }

    fn run(&self, row: &Row, programs: &Programs) -> Result<f64> {
        let name = row.program();
        let program = programs.get(name).with_context(|| format!("no program {name}"))?;
        let log = self.folder.join("printed.log");
        let mut command = program.command();
        command.args(&row.arguments);
        let status = match row.source {
            Source::Twin { .. } => self.run_twins(program, row, &log)?,
            _ => process::run_logged(&mut command, RUN_LIMIT, &log)?,
        };
        if !status.success() {
            bail!("{name} failed ({status}): {}", process::last_lines(&log));
        }
        row.figure(&fs::read_to_string(&log)?)
    }

    /// Runs a server and its client, of which `log` gets the client's table.
    fn run_twins(&self, program: &Executable, row: &Row, log: &Path) -> Result<ExitStatus> {
        let port = free_port()?.to_string();
        let twin = || -> Command {
            let mut command = program.command();
            command.args(&row.arguments).args(["-p", &port, "--timeout", "60"]);
            command
        };
        let mut server = Group::spawn(twin().stdout(Stdio::null()).stderr(Stdio::null()))?;
        // The client waits two seconds for a server, so it needs no sign from this one.
        let status = process::run_logged(twin().arg("localhost"), RUN_LIMIT, log)?;
        let ended = server.wait_until(Instant::now() + ANSWER_LIMIT)?;
        if !ended.is_some_and(|status| status.success()) {
            bail!("the server of {} failed", row.program());
        }
        Ok(status)
    }
}

/// Port that nobody listens on now.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_comes_first_in_its_turn() {
        assert_eq!(order(0), [Side::Before, Side::Now, Side::Again]);
        assert_eq!([1, 2, 3].map(|turn| order(turn)[0]), [Side::Now, Side::Again, Side::Before]);
    }

    #[test]
    fn rows_are_chosen_by_parts_of_their_names() {
        assert!(is_chosen("allreduce, 8 B", &[]) && is_chosen("allreduce, 8 B", &["x".into(), "8 B".into()]));
        assert!(!is_chosen("allreduce, 8 B", &["x".into()]));
    }

    #[test]
    fn a_line_says_whether_the_row_holds() {
        let row = rows::all().remove(0);
        let turns = [Turn { before: 2.0, now: 4.0, again: 2.0 }];
        let line = line(&row, &Verdict::new(&turns, row.better));
        let expected =
            "| allreduce, 2 ranks, 8 B | 2.000 us | 4.000 us | 0.500 (0.500-0.500) | 1.000 | DOES NOT HOLD |";
        assert_eq!(line, expected);
    }
}
