//! AddressSanitizer over the tests of the libraries, and over the programs. What the tests spawn is built the
//! same way; a report of any process is a file, so that one whose exit status nobody looked at counts too.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cargo::{self, check};
use crate::{programs, workspace};

const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// All tests of the packages that touch raw memory, and of those above them what moves data in many ways. The programs'
/// own tests are left out: they hold processes to times, and the programs run here as well.
const TESTS: [&[&str]; 2] = [
    &["-p", "rdma-core", "-p", "conformance", "--lib", "--bins", "--tests"],
    &[
        "-p",
        "rdma-collective",
        "--lib",
        "--test=collectives",
        "--test=faulty",
        "--test=kv",
        "--test=late",
        "--test=pending",
        "--test=pools",
        "--test=pull",
        "--test=revoke",
    ],
];
/// Tests with no memory for the sanitizer to watch, each minutes long under it, and those that it cannot bear.
const LEFT_OUT: [&str; 9] = [
    // Forget a thread and memory, as a child does whose parent goes on using them.
    "what_a_forked_child_drops_",
    // Limit the address space, of which the sanitizer takes most, or take all mappings, of which it needs some.
    // The third leaks what cannot be given back.
    "a_requester_without_address_space_left_",
    "pages_that_cannot_be_put_back_",
    "what_is_dropped_on_shared_pages_",
    "a_process_without_mappings_left_",
    // Arithmetic.
    "every_interleaving_of_small_",
    "every_element_is_reduced_",
    "every_element_of_16_bits_with_every_special_one",
    // Runs the compiler.
    "misuse_does_not_compile",
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
    println!("asan: leaving out `{}`", LEFT_OUT.join("`, `"));
    let mut result = Ok(());
    for which in TESTS {
        let mut tests = cargo::nightly(&["test", "--target", TRIPLE, "--no-fail-fast"])?;
        tests.args(which).arg("--");
        for name in LEFT_OUT {
            tests.args(["--skip", name]);
        }
        instrument(&mut tests, &target, &reports);
        result = result.and(check(&mut tests));
    }
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
