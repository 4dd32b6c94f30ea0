//! `cargo xtask test`: the README's one test command. Runs every suite, the ones on soft-RoCE included, and says
//! how many tests ran where.

use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};

use crate::cargo::{LIMIT, build, cargo};
use crate::soft_roce::{self, Outcome};
use crate::tally::{Counts, Row, table};
use crate::times::Times;
use crate::{beside, packages, process, programs, workspace};

/// Runs of `conformance` that need no device: the name, and the arguments.
const CONFORMANCE: [(&str, &[&str]); 4] = [
    ("conformance, soft, any wire", &["--device", "soft", "--wire", "auto"]),
    ("conformance, soft, local wire", &["--device", "soft", "--wire", "local"]),
    ("conformance, soft, mapped wire", &["--device", "soft", "--wire", "mapped"]),
    ("conformance, soft, TCP wire", &["--device", "soft", "--wire", "tcp"]),
];

const WORKSPACE: &str = "workspace";

/// The test that starts a launcher of Debian's.
const MPIRUN: &str = "mpirun_launches_it_with_nothing_else_set";

/// Options of `cargo xtask test`.
#[derive(Parser)]
pub struct Args {
    /// Which suites [default: all].
    #[arg(value_enum)]
    suites: Vec<Suite>,
}

/// What runs together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Needs cargo and a linker: the workspace's tests, and conformance on the software device.
    Anywhere,
    /// Soft-RoCE on one host.
    OneHost,
    /// Soft-RoCE between two hosts.
    TwoHosts,
}

/// Runs the suites; fails when a test did, or when CI could not run one of them.
pub fn main(args: &Args) -> Result<()> {
    let suites = if args.suites.is_empty() { Suite::value_variants() } else { &args.suites };
    let mut times = Times::default();
    let mut rows = Vec::new();
    let mut absent = false;
    for suite in suites {
        let hosts = match suite {
            Suite::Anywhere => {
                rows.extend(without_device(&mut times)?);
                continue;
            }
            Suite::OneHost => 1,
            Suite::TwoHosts => 2,
        };
        let run = times.step(&format!("soft-RoCE, {hosts} host(s)"), || {
            soft_roce::suite(hosts, soft_roce::Share::Regular)
        })?;
        absent |= matches!(run.outcome, Outcome::Skipped(_));
        rows.extend(run.rows);
    }
    println!("\n{}", times.list());
    conclude(&rows)?;
    if absent && workspace::in_ci() {
        bail!("CI=true, and the suite on soft-RoCE did not take place");
    }
    Ok(())
}

/// The suites that any machine can run.
pub fn on_any_machine() -> Result<()> {
    let mut times = Times::default();
    let rows = without_device(&mut times)?;
    println!("\n{}", times.list());
    conclude(&rows)
}

fn without_device(times: &mut Times) -> Result<Vec<Row>> {
    // A launcher that one of the tests starts. Where it cannot be had, that is a failure in CI.
    let launcher = packages::ensure(&["openmpi-bin"], &workspace::target()?.join("apt.log"))?;
    let mut args: &[&str] = &[];
    let mut skipped = None;
    if let Err(reason) = launcher
        && Command::new("mpirun").arg("--version").output().is_err()
        && !workspace::in_ci()
    {
        args = &["--skip", MPIRUN];
        skipped = Some(Row { suite: MPIRUN.to_owned(), counts: Counts::ONE_SKIPPED, note: reason });
    }
    let built =
        times.step("workspace, built", || build(&mut cargo(&["test", "--workspace", "--no-run"])?))?;
    let mut tests = times.step("workspace", || {
        beside::run_tests(WORKSPACE, &built, |command| {
            command.args(args);
        })
    });
    let in_docs = times.step("workspace, examples in the documentation", examples)?;
    tests.counts = tests.counts.plus(in_docs.counts);
    let notes = [tests.note, in_docs.note].into_iter().filter(|note| !note.is_empty());
    tests.note = notes.collect::<Vec<_>>().join("; ");
    let mut rows = vec![tests];
    rows.extend(skipped);
    let programs = times.step("programs, built", || build(&mut cargo(programs::BUILD)?))?;
    let conformance = programs.iter().find(|program| program.name == "conformance");
    let conformance = conformance.context("the workspace has no program `conformance`")?;
    rows.extend(times.step("conformance", || {
        beside::each(&CONFORMANCE, beside::processors(), |(name, args)| {
            beside::run(name, conformance.command().args(*args))
        })
    }));
    rows.iter_mut().filter(|row| row.note.is_empty() && row.counts.skipped > 0).for_each(|row| {
        row.note = "what it skipped needs a device: see soft-RoCE".to_owned();
    });
    Ok(rows)
}

/// Prints the table, and fails when a test did.
pub fn conclude(rows: &[Row]) -> Result<()> {
    println!("\n{}", table(rows));
    match rows.iter().map(|row| row.counts.failed).sum::<u32>() {
        0 => Ok(()),
        failed => bail!("{failed} tests failed"),
    }
}

/// The examples in the documentation, which are built as they run.
fn examples() -> Result<Row> {
    let (status, output) =
        process::run_shown(&mut cargo(&["test", "--workspace", "--doc", "--no-fail-fast"])?, LIMIT)?;
    let note =
        if status.success() { String::new() } else { "examples in the documentation failed".to_owned() };
    Ok(Row { suite: WORKSPACE.to_owned(), counts: Counts::of_run(&output, status.success()), note })
}
