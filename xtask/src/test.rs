//! `cargo xtask test`: the README's one test command. Runs every suite, the ones on soft-RoCE included, and says
//! how many tests ran where.

use std::process::Command;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};

use crate::beside::Company;
use crate::cargo::{Executable, LIMIT, build, cargo};
use crate::soft_roce::{self, Outcome};
use crate::tally::{Counts, Row, table};
use crate::times::Times;
use crate::{beside, packages, process, programs, workspace};

/// The test that starts a launcher of Debian's.
const MPIRUN: &str = "mpirun_launches_it_with_nothing_else_set";

/// Packages of the programs that the servers are tested with.
const SERVERS_NEED: &[&str] = &["chromium", "curl", "etcd-server", "prometheus", "python3-venv"];

/// Options of `cargo xtask test`.
#[derive(Parser)]
pub struct Args {
    /// Suites to run [default: all].
    #[arg(value_enum)]
    suites: Vec<Suite>,
    /// Installs and builds what the suite of the servers needs, and runs nothing.
    #[arg(long)]
    no_run: bool,
}

/// A suite: tests that run together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Needs cargo and a linker: the tests of the workspace that nothing may run beside.
    Alone,
    /// Needs cargo and a linker: the other tests of the workspace, conformance on the software device among them, and
    /// the examples in the documentation.
    Anywhere,
    /// Needs, beside cargo and a linker, what the servers work with: etcd, Prometheus, a browser and Python.
    Servers,
    /// Soft-RoCE on one host.
    OneHost,
    /// Soft-RoCE between two hosts.
    TwoHosts,
}

/// Runs the suites; fails when a test did, or when CI could not run one of them.
pub fn main(args: &Args) -> Result<()> {
    if args.no_run {
        if args.suites != [Suite::Servers] {
            bail!("only the servers are built without being run");
        }
        return build_servers().map(|_| ());
    }
    let suites = if args.suites.is_empty() { Suite::value_variants() } else { &args.suites };
    let mut times = Times::default();
    let mut rows = Vec::new();
    let mut absent = false;
    for suite in suites {
        let hosts = match suite {
            Suite::Alone => {
                rows.extend(tests(&mut times, Company::Alone)?);
                continue;
            }
            Suite::Anywhere => {
                rows.extend(tests(&mut times, Company::Others)?);
                rows.push(times.step("examples in the documentation", examples)?);
                continue;
            }
            Suite::Servers => {
                rows.push(servers(&mut times)?);
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
    let mut rows = tests(&mut times, Company::Alone)?;
    rows.extend(tests(&mut times, Company::Others)?);
    rows.push(times.step("examples in the documentation", examples)?);
    println!("\n{}", times.list());
    conclude(&rows)
}

fn tests(times: &mut Times, company: Company) -> Result<Vec<Row>> {
    let suite = match company {
        Company::Alone => "workspace, alone",
        Company::Others => "workspace",
    };
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
    let built = times.step("workspace, built", || build(&mut cargo(programs::TESTS)?))?;
    let row = times.step(suite, || {
        beside::run_tests(suite, &built, company, |command| {
            command.args(args);
        })
    });
    let mut rows = vec![row];
    rows.extend(skipped.filter(|_| company == Company::Others));
    rows.iter_mut().filter(|row| row.note.is_empty() && row.counts.skipped > 0).for_each(|row| {
        row.note = "what it skipped needs a device: see soft-RoCE".to_owned();
    });
    Ok(rows)
}

/// The tests of the servers, which skip what the machine has no program for, but not in CI.
fn servers(times: &mut Times) -> Result<Row> {
    let built = times.step("servers, built", build_servers)?;
    let row = times.step("servers", || beside::run_tests("servers", &built, Company::Others, |_| {}));
    Ok(row)
}

fn build_servers() -> Result<Vec<Executable>> {
    if let Err(reason) = packages::ensure(SERVERS_NEED, &workspace::target()?.join("apt.log"))? {
        println!("{reason}");
    }
    build(&mut cargo(programs::TESTS_OF_SERVERS)?)
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
    let (status, output) = process::run_shown(
        &mut cargo(&["test", "--workspace", "--exclude=servers", "--doc", "--no-fail-fast"])?,
        LIMIT,
    )?;
    let note =
        if status.success() { String::new() } else { "examples in the documentation failed".to_owned() };
    Ok(Row {
        suite: "examples in the documentation".to_owned(),
        counts: Counts::of_run(&output, status.success()),
        note,
    })
}
