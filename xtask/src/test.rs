//! `cargo xtask test`: the README's one test command. Runs every suite, the ones on soft-RoCE included, and says
//! how many tests ran where.

use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};

use crate::cargo::{LIMIT, build, cargo};
use crate::soft_roce::{self, Outcome};
use crate::tally::{Counts, Row, table};
use crate::{packages, process, programs, workspace};

/// Runs of `conformance` that need no device: the name, and the arguments.
const CONFORMANCE: [(&str, &[&str]); 3] = [
    ("conformance, soft, local wire", &["--device", "soft", "--wire", "local"]),
    ("conformance, soft, mapped wire", &["--device", "soft", "--wire", "mapped"]),
    ("conformance, soft, TCP wire", &["--device", "soft", "--wire", "tcp"]),
];

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
    let mut rows = Vec::new();
    let mut absent = false;
    for suite in suites {
        let hosts = match suite {
            Suite::Anywhere => {
                rows.extend(without_device()?);
                continue;
            }
            Suite::OneHost => 1,
            Suite::TwoHosts => 2,
        };
        println!("==> soft-RoCE, {hosts} host(s)");
        let run = soft_roce::suite(hosts, soft_roce::Share::Regular)?;
        absent |= matches!(run.outcome, Outcome::Skipped(_));
        rows.extend(run.rows);
    }
    conclude(&rows)?;
    if absent && workspace::in_ci() {
        bail!("CI=true, and the suite on soft-RoCE did not take place");
    }
    Ok(())
}

/// The suites that any machine can run.
pub fn on_any_machine() -> Result<()> {
    conclude(&without_device()?)
}

fn without_device() -> Result<Vec<Row>> {
    // A launcher that one of the tests starts. Where it cannot be had, that is a failure in CI.
    let launcher = packages::ensure(&["openmpi-bin"], &workspace::target()?.join("apt.log"))?;
    let mut tests = cargo(&["test", "--workspace", "--no-fail-fast"])?;
    let mut skipped = Vec::new();
    if let Err(reason) = launcher
        && Command::new("mpirun").arg("--version").output().is_err()
        && !workspace::in_ci()
    {
        tests.args(["--", "--skip", MPIRUN]);
        skipped.push(Row { suite: MPIRUN.to_owned(), counts: Counts::ONE_SKIPPED, note: reason });
    }
    let mut rows = vec![run("workspace", &mut tests)?];
    rows.extend(skipped);
    let programs = build(&mut cargo(programs::BUILD)?)?;
    let conformance = programs.iter().find(|program| program.name == "conformance");
    let conformance = conformance.context("the workspace has no program `conformance`")?;
    for (name, args) in CONFORMANCE {
        rows.push(run(name, Command::new(&conformance.path).args(args))?);
    }
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

fn run(name: &str, command: &mut Command) -> Result<Row> {
    println!("==> {name}");
    let (status, output) = process::run_shown(command, LIMIT)?;
    let counts = Counts::of_run(&output, status.success());
    let note = match (status.success(), counts.skipped) {
        (false, _) => format!("ended with {status}"),
        (true, 0) => String::new(),
        (true, _) => "what it skipped needs a device: see soft-RoCE".to_owned(),
    };
    Ok(Row { suite: name.to_owned(), counts, note })
}
