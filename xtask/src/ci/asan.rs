//! AddressSanitizer over the tests of the libraries, and over the programs. What the tests spawn is built the
//! same way; a report of any process is a file, so that one whose exit status nobody looked at counts too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::beside::Company;
use crate::cargo::{self, Executable};
use crate::soft_roce::Share;
use crate::times::Times;
use crate::{beside, programs, test, workspace};

const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// Tests of the code that touches raw memory: its units, what is mapped from other processes, what drives a provider
/// of libibverbs, and every verb by `conformance`. The collectives come by the programs. Their own tests are left out:
/// they hold processes to times.
const REGULAR: &[&str] = &[
    "-p",
    "rdma-core",
    "-p",
    "conformance",
    "-p",
    "rdma-collective",
    "--lib",
    "--test=mapped",
    "--test=driver",
    "--test=pinning",
    "--test=soft",
];
/// Tests that a soak has besides: they reach the same raw memory by other calls.
const BESIDES: &[&str] = &[
    "--test=allocations",
    "--test=bad_input",
    "--test=collectives",
    "--test=exact",
    "--test=faults",
    "--test=kv",
    "--test=memlock",
    "--test=planted",
    "--test=ring_collectives",
    "--test=tcp",
    "--test=transfers",
];
/// Flags that choose the features once for all packages, so that nothing is built twice.
const UNITED: [&str; 3] = ["-Zfeature-unification", "--config", "resolver.feature-unification='workspace'"];
/// Tests with no memory for the sanitizer to watch, each minutes long under it, and those that it cannot bear.
const LEFT_OUT: [&str; 13] = [
    // Forget a thread and memory, as a child does whose parent goes on using them.
    "what_a_forked_child_drops_",
    // Limit the address space, of which the sanitizer takes most, or take all mappings, of which it needs some.
    // The third leaks what cannot be given back.
    "a_requester_without_address_space_left_",
    "pages_that_cannot_be_put_back_",
    "what_is_dropped_on_shared_pages_",
    "a_process_without_mappings_left_",
    "no_mappings_left_to_map_a_peer",
    // Ends its peer by a signal, which is meant.
    "a_peer_that_unmaps_everything_that_it_shares_",
    // Arithmetic.
    "every_interleaving_of_small_",
    "every_element_is_reduced_",
    "every_element_comes_where_it_must_",
    "every_element_of_16_bits_with_every_special_one",
    // Steps, and how they go on in simulated memory and time.
    "collective::schedule::",
    // Runs the compiler.
    "misuse_does_not_compile",
];
/// No other failure ends with this.
const EXIT_CODE: u8 = 97;

/// Builds with the sanitizer, runs everything, and looks for reports.
pub fn run(share: Share) -> Result<()> {
    let target = folder()?;
    let reports = target.join("reports");
    if reports.exists() {
        fs::remove_dir_all(&reports)?;
    }
    fs::create_dir_all(&reports).with_context(|| format!("cannot create {}", reports.display()))?;
    // Doctests run elsewhere: each is a program of its own, and building them takes longer than all the rest.
    println!("asan: leaving out `{}`", LEFT_OUT.join("`, `"));
    let mut times = Times::default();
    let (tests, programs) = times.step("asan, built", || build(share))?;
    let mut rows = vec![times.step("asan, tests", || {
        beside::run_tests("tests", &tests, Company::Others, |command| {
            command.args(LEFT_OUT.iter().flat_map(|name| ["--skip", name]));
            instrument(command, &target);
        })
    })];
    if share == Share::Soak {
        rows.push(beside::run_tests("tests, alone", &tests, Company::Alone, |command| {
            instrument(command, &target)
        }));
    }
    times.step("asan, programs", || {
        for program in programs.iter().filter(|program| programs::README.contains(&program.name.as_str())) {
            let mut command = program.command();
            instrument(&mut command, &target);
            rows.push(beside::run(&program.name, &mut command));
        }
    });
    println!("\n{}", times.list());
    let result = test::conclude(&rows);
    match print_reports(&reports)? {
        0 => result,
        count => bail!("{count} reports of the sanitizer"),
    }
}

/// Builds the tests, and the programs.
pub fn build(share: Share) -> Result<(Vec<Executable>, Vec<Executable>)> {
    let target = folder()?;
    let build = |args: &[&str]| {
        let mut command = cargo::nightly(&[args, &["--target", TRIPLE], &UNITED].concat())?;
        instrument(&mut command, &target);
        cargo::build(&mut command)
    };
    let besides = if share == Share::Soak { BESIDES } else { &[] };
    let mut tests = build(&[&["test", "--no-run"], REGULAR, besides].concat())?;
    tests.retain(|built| built.is_test);
    // With one of the tests, since what tests alone need has a part in the choice of features.
    let mut args = vec!["build", "--test=driver"];
    args.extend(programs::README.iter().flat_map(|program| ["--bin", program]));
    Ok((tests, build(&args)?))
}

/// Where it is built, in a folder of its own.
fn folder() -> Result<PathBuf> {
    Ok(workspace::target()?.join("asan"))
}

fn instrument(command: &mut Command, target: &Path) {
    let log = target.join("reports/asan").display().to_string();
    let options = format!("exitcode={EXIT_CODE}:log_path={log}:detect_leaks=1:strict_string_checks=1");
    command.env("RUSTFLAGS", "-Zsanitizer=address").env("CARGO_TARGET_DIR", target);
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
