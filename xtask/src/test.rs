//! `cargo xtask test`: the README's one test command. Runs every suite, the ones on soft-RoCE included, and says
//! how many tests ran where.

use anyhow::{Result, bail};

use crate::cargo::{LIMIT, cargo};
use crate::soft_roce::{self, Outcome};
use crate::tally::{Counts, Row, table};
use crate::{process, workspace};

/// Suites that need no device: the name, and the arguments of cargo. Each is counted by what it prints at its end.
const SUITES: &[(&str, &[&str])] = &[
    ("workspace", &["test", "--workspace", "--no-fail-fast"]),
    (
        "conformance, soft, local wire",
        &["run", "--release", "-p", "conformance", "--", "--device", "soft", "--wire", "local"],
    ),
    (
        "conformance, soft, TCP wire",
        &["run", "--release", "-p", "conformance", "--", "--device", "soft", "--wire", "tcp"],
    ),
];

/// Runs everything; fails when a test did, or when CI could not run a suite.
pub fn main() -> Result<()> {
    let mut rows = Vec::new();
    for (name, args) in SUITES {
        println!("==> {name}: cargo {}", args.join(" "));
        rows.push(run_cargo(name, args)?);
    }
    let mut absent = false;
    for hosts in [1, 2] {
        println!("==> soft-RoCE, {hosts} host(s)");
        let run = soft_roce::suite(hosts)?;
        absent |= matches!(run.outcome, Outcome::Skipped(_));
        rows.extend(run.rows);
    }
    println!("\n{}", table(&rows));
    let failed: u32 = rows.iter().map(|row| row.counts.failed).sum();
    if failed > 0 {
        bail!("{failed} tests failed");
    }
    if absent && workspace::in_ci() {
        bail!("CI=true, and the suite on soft-RoCE did not take place");
    }
    Ok(())
}

fn run_cargo(name: &str, args: &[&str]) -> Result<Row> {
    let (status, output) = process::run_shown(&mut cargo(args)?, LIMIT)?;
    let counts = Counts::of_run(&output, status.success());
    let note = match (status.success(), counts.skipped) {
        (false, _) => format!("cargo ended with {status}"),
        (true, 0) => String::new(),
        (true, _) => "what it skipped needs a device: see soft-RoCE".to_owned(),
    };
    Ok(Row { suite: (*name).to_owned(), counts, note })
}
