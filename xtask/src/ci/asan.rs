//! AddressSanitizer over the tests of the libraries, and over the programs. What the tests spawn is built the
//! same way; a report of any process is a file, so that one whose exit status nobody looked at counts too.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cargo::{self, check};
use crate::{programs, workspace};

const TRIPLE: &str = "x86_64-unknown-linux-gnu";
const PACKAGES: [&str; 4] = ["rdma-core", "rdma-collective", "conformance", "examples"];
/// Tests with no memory for the sanitizer to watch, each minutes long under it.
const LEFT_OUT: [&str; 2] = [
    "every_interleaving_of_small_rings", // arithmetic
    "misuse_does_not_compile",           // runs the compiler
];
/// No other failure ends with this.
const EXIT_CODE: u8 = 97;

/// Builds with the sanitizer, runs everything, and looks for reports.
pub fn run() -> Result<()> {
    let target = workspace::target()?.join("asan");
    let reports = target.join("reports");
    if reports.exists() {
        fs::remove_dir_all(&reports)?;
    }
    fs::create_dir_all(&reports).with_context(|| format!("cannot create {}", reports.display()))?;
    // Doctests run elsewhere: each is a program of its own, and building them takes longer than all the rest.
    let mut tests =
        cargo::nightly(&["test", "--target", TRIPLE, "--lib", "--bins", "--tests", "--no-fail-fast"])?;
    for package in PACKAGES {
        tests.args(["-p", package]);
    }
    instrument(&mut tests, &target, &reports);
    tests.arg("--");
    for name in LEFT_OUT {
        println!("asan: leaving out `{name}`");
        tests.args(["--skip", name]);
    }
    let mut result = check(&mut tests);
    for program in programs::README {
        let mut command = cargo::nightly(&["run", "--quiet", "--target", TRIPLE, "--bin"])?;
        command.args(program.split(' '));
        instrument(&mut command, &target, &reports);
        result = result.and(check(&mut command));
    }
    match print_reports(&reports)? {
        0 => result,
        count => bail!("{count} reports of the sanitizer"),
    }
}

fn instrument(command: &mut Command, target: &Path, reports: &Path) {
    let log = reports.join("asan").display().to_string();
    let options = format!("exitcode={EXIT_CODE}:log_path={log}:detect_leaks=1:strict_string_checks=1");
    command.env("RUSTFLAGS", "-Zsanitizer=address").env("CARGO_TARGET_DIR", target);
    command
        .env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only")
        .env("CARGO_PROFILE_TEST_DEBUG", "line-tables-only");
    command.env("ASAN_OPTIONS", options).env("LSAN_OPTIONS", format!("exitcode={EXIT_CODE}"));
}

fn print_reports(folder: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        println!("{}:\n{}", path.display(), fs::read_to_string(&path).unwrap_or_default());
        count += 1;
    }
    Ok(count)
}
