//! Each fuzz target for some seconds, from its checked-in inputs where it has some: enough to show that it builds,
//! starts and does not fail at once. Longer runs are for a person with `cargo fuzz`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cargo::{self, Executable};
use crate::soft_roce::Share;
use crate::{beside, process, workspace};

const MANIFEST: &str = "fuzz/Cargo.toml";
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// Seconds of one target in CI, and in a soak.
const SECONDS: [u64; 2] = [2, 60];
const GRACE: Duration = Duration::from_secs(60);
/// Flags that cargo-fuzz passes to rustc: coverage for libFuzzer, and AddressSanitizer. Its single unit of codegen and
/// its full optimisation are left out, because the targets run for seconds, and building them so takes minutes.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Zsanitizer=address";

/// Builds all targets, and runs them, as many at a time as there are processors.
pub fn run(share: Share) -> Result<()> {
    let seconds = SECONDS[usize::from(share == Share::Soak)];
    let (root, target) = (workspace::root()?, folder()?);
    let targets = build()?;
    let results = beside::each(&targets, beside::processors(), |fuzz| {
        run_target(fuzz, seconds, [&root, &target]).inspect_err(|error| println!("error: {error:#}"))
    });
    let failed = targets.iter().zip(results).filter(|(_, result)| result.is_err());
    let failed: Vec<&str> = failed.map(|(fuzz, _)| fuzz.name.as_str()).collect();
    if !failed.is_empty() {
        bail!("fuzz targets that failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Builds all targets.
pub fn build() -> Result<Vec<Executable>> {
    if !workspace::root()?.join(MANIFEST).exists() {
        bail!("{MANIFEST} is not there");
    }
    let mut command =
        cargo::nightly(&["build", "--release", "--bins", "--target", TRIPLE, "--manifest-path", MANIFEST])?;
    command
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", folder()?)
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0");
    let targets = cargo::build(&mut command)?;
    if targets.is_empty() {
        bail!("{MANIFEST} has no target");
    }
    Ok(targets)
}

/// Where they are built, in a folder of its own.
fn folder() -> Result<PathBuf> {
    Ok(workspace::target()?.join("fuzz"))
}

fn run_target(fuzz: &Executable, seconds: u64, [root, target]: [&Path; 2]) -> Result<()> {
    // New inputs go to the first folder, under `target`; the checked-in ones are only read.
    let fresh = target.join("corpus").join(&fuzz.name);
    fs::create_dir_all(&fresh)?;
    let artifacts = target.join("artifacts").join(&fuzz.name);
    fs::create_dir_all(&artifacts)?;
    let log = target.join(format!("{}.log", fuzz.name));
    let mut command = Command::new(&fuzz.path);
    command.arg(format!("-max_total_time={seconds}")).arg("-timeout=5").arg("-rss_limit_mb=1024");
    command.arg(format!("-artifact_prefix={}/", artifacts.display())).arg(&fresh);
    let seeds = root.join("fuzz/corpus").join(&fuzz.name);
    if seeds.is_dir() {
        command.arg(seeds);
    }
    let status = process::run_logged(&mut command, Duration::from_secs(seconds) + GRACE, &log)?;
    let text = fs::read_to_string(&log).context("no log of the fuzz target")?;
    if !status.success() {
        let lines: Vec<&str> = text.lines().collect();
        println!("{}", lines[lines.len().saturating_sub(60)..].join("\n"));
        bail!("{} ended with {status}, its input is under {}", fuzz.name, artifacts.display());
    }
    let summary = text.lines().rev().find(|line| line.contains("Done ")).unwrap_or("ended without a summary");
    println!("{}: {summary}", fuzz.name);
    Ok(())
}
