//! The suite that runs where a soft-RoCE device is: [`cases`], [`collectives`], [`perftest`], [`tools`] and [`faults`]
//! say what, this file builds it and reads the reports, [`mod@inside`] runs it on each host: each process is a
//! [`side`], on a [`network`] that may be disturbed.

mod cases;
mod collectives;
mod ended;
mod faults;
mod inside;
mod network;
mod perftest;
mod side;
mod tools;

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;

use super::{Args, Outcome, Run};
use crate::tally::{Counts, Row};
use crate::workspace;

pub use cases::Share;
pub use inside::Args as InsideArgs;
pub use inside::main as inside;

/// The file that each host leaves in its folder: a line for each case.
const REPORT: &str = "report";

/// The outcome of a run of the suite.
pub struct SuiteRun {
    /// How the hosts ended.
    pub outcome: Outcome,
    /// How many tests ran, for each case.
    pub rows: Vec<Row>,
}

/// Builds what the hosts need, and runs the suite on one host or two.
pub fn run(hosts: u8, share: Share) -> Result<SuiteRun> {
    let plan = write_plan(hosts, share)?;
    // A copy, because a build beside this run may replace the program; the kernel keeps the one that runs.
    let xtask = plan.with_file_name("xtask");
    fs::copy("/proc/self/exe", &xtask).context("cannot copy this program for the hosts")?;
    let command = [xtask.into_os_string(), OsString::from("soft-roce-inside"), plan.into_os_string()];
    let options =
        ["soft-roce", "--hosts", &hosts.to_string(), "--timeout", &share.limit().as_secs().to_string(), "--"]
            .map(OsString::from);
    let args = Args::try_parse_from(options.into_iter().chain(command))?;
    let run = super::run(&args, &[REPORT])?;
    let rows = rows(hosts, &run);
    Ok(SuiteRun { outcome: run.outcome, rows })
}

/// The cases for `hosts` hosts with their programs found, in a file that the guests can read.
fn write_plan(hosts: u8, share: Share) -> Result<PathBuf> {
    let plan = cases::plan(hosts, share, &cases::build(share)?)?;
    let folder = workspace::target()?.join("soft-roce-plans");
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{hosts}.json"));
    fs::write(&path, serde_json::to_vec_pretty(&plan)?)?;
    Ok(path)
}

/// A row for each case: the counts of the host that had more to tell (a server counts as one test, the client that runs
/// a whole suite against it as many), and the failures of every host.
fn rows(hosts: u8, run: &Run) -> Vec<Row> {
    let place = format!("soft-RoCE, {hosts} host{}", if hosts == 1 { "" } else { "s" });
    let mut rows: Vec<Row> = Vec::new();
    for (name, counts) in run.files.iter().flat_map(|files| parse(&files[0])) {
        let suite = format!("{place}: {name}");
        let Some(row) = rows.iter_mut().find(|row| row.suite == suite) else {
            rows.push(Row { suite, counts, note: String::new() });
            continue;
        };
        row.counts.passed = row.counts.passed.max(counts.passed);
        row.counts.skipped = row.counts.skipped.max(counts.skipped);
        row.counts.failed += counts.failed;
    }
    let told = rows.iter().any(|row| row.counts.failed > 0);
    match &run.outcome {
        Outcome::Skipped(reason) => {
            rows.push(Row { suite: place, counts: Counts::ONE_SKIPPED, note: reason.clone() });
        }
        Outcome::Failed(reason) if !told => {
            rows.push(Row { suite: place, counts: Counts::ONE_FAILED, note: reason.clone() });
        }
        Outcome::Passed if rows.is_empty() => {
            let note = "the hosts passed, and reported no case".to_owned();
            rows.push(Row { suite: place, counts: Counts::ONE_FAILED, note });
        }
        Outcome::Failed(_) | Outcome::Passed => {}
    }
    rows
}

fn line(name: &str, counts: Counts) -> String {
    let Counts { passed, failed, skipped } = counts;
    format!("{name}\t{passed}\t{failed}\t{skipped}\n")
}

fn parse(report: &str) -> Vec<(String, Counts)> {
    let parse_line = |line: &str| {
        let mut parts = line.split('\t');
        let name = parts.next()?.to_owned();
        let mut number = || parts.next()?.parse().ok();
        Some((name, Counts { passed: number()?, failed: number()?, skipped: number()? }))
    };
    report.lines().filter_map(parse_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(outcome: Outcome, reports: &[&str]) -> Run {
        Run { outcome, files: reports.iter().map(|report| vec![(*report).to_owned()]).collect() }
    }

    const PASSED: Counts = Counts { passed: 60, failed: 0, skipped: 1 };

    #[test]
    fn a_report_line_is_read_as_it_was_written() {
        assert_eq!(parse(&line("conformance", PASSED)), [("conformance".to_owned(), PASSED)]);
        assert_eq!(parse("half a li"), []);
    }

    #[test]
    fn a_failure_of_the_second_host_counts() {
        let (passed, failed) = (line("kv", PASSED), line("kv", Counts::ONE_FAILED));
        let rows = rows(2, &run(Outcome::Failed("host 1".to_owned()), &[&passed, &failed]));
        assert_eq!(rows.iter().map(|row| row.counts).collect::<Vec<_>>(), [Counts { failed: 1, ..PASSED }]);
    }

    #[test]
    fn a_pass_without_a_report_is_a_failure() {
        assert_eq!(rows(1, &run(Outcome::Passed, &[""]))[0].counts, Counts::ONE_FAILED);
    }

    #[test]
    fn a_host_that_died_half_way_is_a_failure() {
        let rows = rows(1, &run(Outcome::Failed("no verdict".to_owned()), &[&line("kv", PASSED)]));
        assert_eq!(rows.iter().map(|row| row.counts.failed).sum::<u32>(), 1);
    }
}
