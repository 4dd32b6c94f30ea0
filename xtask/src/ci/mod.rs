//! `cargo xtask ci`: the project's checks, by name. A step is what CI runs and what a person runs at home.

mod abi_check;
mod bare;
mod debian;
mod deny;
mod example_links;
mod fuzz;
mod headers;
mod loom;
mod manifests;
mod msrv;
mod needed;
mod public_api;
mod sanitizer;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};

use self::sanitizer::{ASAN, TSAN};
use crate::cargo::{cargo, check};
use crate::soft_roce::Share;
use crate::times::{HEADING, Took};
use crate::{docs, process, results, soft_roce, test, tidy, transcripts, workspace};

pub use public_api::Args as PublicApiArgs;
pub use public_api::main as public_api;

/// The tests under the sanitizers, all of them, and every fuzz target for a minute.
pub fn soak_instrumented() -> Result<()> {
    ASAN.run(Share::Soak).and(TSAN.run(Share::Soak)).and(fuzz::run(Share::Soak))
}

/// Options of `cargo xtask ci`.
#[derive(Parser)]
pub struct Args {
    /// Steps to run [default: all, and `deny` only where cargo-deny is installed].
    steps: Vec<Step>,
    /// Builds what `asan`, `tsan` and `fuzz` run, and runs nothing.
    #[arg(long)]
    no_run: bool,
}

/// A check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    /// The sources are formatted.
    Fmt,
    /// The measurable part of the house style.
    Tidy,
    /// No warning from clippy, tests and benches included.
    Clippy,
    /// The tests of the workspace, and conformance on the software device.
    Test,
    /// The libraries' documentation builds without a warning.
    Doc,
    /// The public API is the one that is checked in.
    PublicApi,
    /// The libraries build with the oldest toolchain that is promised.
    Msrv,
    /// The README's programs build and run with nothing but cargo and a linker.
    Bare,
    /// No program needs the RDMA libraries to start.
    Needed,
    /// The tests and programs under AddressSanitizer.
    Asan,
    /// The tests of the software device under ThreadSanitizer.
    Tsan,
    /// Every fuzz target for some seconds.
    Fuzz,
    /// Every interleaving of the parts without a lock.
    Loom,
    /// The libraries tell a recorder what they count, where the feature `metrics` is on.
    Metrics,
    /// Our declarations agree with the C headers, those installed and those of other releases.
    AbiCheck,
    /// The transcripts in the documents are what their commands print.
    Transcripts,
    /// RESULTS.md and README's rows are what the benches have saved.
    Results,
    /// The manifests of `deploy/` are valid, ask for no right that they do not need, and run.
    Manifests,
    /// Every program has man pages and completions, which man and shells can read.
    Docs,
    /// Licences, sources and advisories of the dependencies.
    Deny,
    /// The suite on soft-RoCE, on one host and on two.
    SoftRoce,
}

/// The programs are left out: the comments on their options are help texts, in another syntax.
const DOC: &[&str] = &["doc", "--no-deps", "-p", "rdma-core", "-p", "rdma-collective", "-p", "conformance"];

/// How a step that did not fail ended.
pub enum Done {
    /// All of it was checked.
    Whole,
    /// Something could not be checked; what, and what would change that.
    Partly(String),
}

/// Runs the steps one after the other, all of them even when one fails, and prints how they went.
pub fn main(args: &Args) -> Result<()> {
    let steps = if args.steps.is_empty() { default_steps() } else { args.steps.clone() };
    let mut report: Vec<(Step, Took, Result<Done>)> = Vec::new();
    for step in steps {
        println!("==> {}", name(step));
        let (result, took) = Took::measure(|| run(step, args.no_run));
        if let Err(error) = &result {
            println!("error: {error:#}");
        }
        report.push((step, took, result));
        if process::interrupted() {
            break;
        }
    }
    println!("\n{:<11} {HEADING}  result", "step");
    for (step, took, result) in &report {
        let result = match result {
            Ok(Done::Whole) => "passed".to_owned(),
            Ok(Done::Partly(what)) => format!("passed in part: {what}"),
            Err(error) => format!("failed: {error}"),
        };
        println!("{:<11} {}  {result}", name(*step), took.columns());
    }
    match report.iter().filter(|(_, _, result)| result.is_err()).count() {
        0 => Ok(()),
        failed => bail!("{failed} of {} steps failed", report.len()),
    }
}

fn default_steps() -> Vec<Step> {
    let all = Step::value_variants().iter().copied();
    all.filter(|step| *step != Step::Deny || deny::is_installed()).collect()
}

fn name(step: Step) -> String {
    step.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn run(step: Step, no_run: bool) -> Result<Done> {
    match step {
        Step::Asan if no_run => built(ASAN.build(Share::Regular)),
        Step::Tsan if no_run => built(TSAN.build(Share::Regular)),
        Step::Fuzz if no_run => built(fuzz::build()),
        _ if no_run => bail!("only asan, tsan and fuzz are built without being run"),
        Step::Fmt => whole(check(&mut cargo(&["fmt", "--all", "--check"])?)),
        Step::Tidy => whole(tidy::main(&tidy::Args::default())),
        Step::Clippy => whole(clippy()),
        Step::Test => whole(test::on_any_machine()),
        Step::Doc => whole(check(cargo(DOC)?.env("RUSTDOCFLAGS", "-D warnings"))),
        Step::PublicApi => whole(public_api::check()),
        Step::Msrv => msrv::run(),
        Step::Bare => whole(bare::run()),
        Step::Needed => whole(needed::run()),
        Step::Asan => whole(ASAN.run(Share::Regular)),
        Step::Tsan => whole(TSAN.run(Share::Regular)),
        Step::Fuzz => whole(fuzz::run(Share::Regular)),
        Step::Loom => whole(loom::run()),
        Step::Metrics => whole(metrics()),
        Step::AbiCheck => abi_check::run(),
        Step::Transcripts => whole(transcripts::main()),
        Step::Results => whole(results::check()),
        Step::Manifests => whole(manifests::run()),
        Step::Docs => whole(docs::check()),
        Step::Deny => deny::run(),
        Step::SoftRoce => soft_roce(),
    }
}

/// The servers apart, because they turn features of the libraries on.
fn clippy() -> Result<()> {
    const OTHERS: &[&str] = &["--workspace", "--exclude=servers"];
    for packages in [OTHERS, &["--package=servers", "--all-features"]] {
        check(cargo(&["clippy", "--all-targets"])?.args(packages).args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}

/// Not optimised, and in a folder of its own, because nothing else is built with this feature alone.
fn metrics() -> Result<()> {
    const TESTS: [&[&str]; 2] = [
        &["--package=rdma-collective", "--features=metrics", "--test=metrics"],
        &["--package=rdma-core", "--features=metrics", "--lib", "metrics::"],
    ];
    let target = workspace::target()?.join("metrics");
    for tests in TESTS {
        let mut command = cargo(&["test"])?;
        command.args(tests).env("CARGO_TARGET_DIR", &target).env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
        check(&mut command)?;
    }
    Ok(())
}

fn built<T>(result: Result<T>) -> Result<Done> {
    result.map(|_| Done::Partly("built, not run".to_owned()))
}

fn whole(result: Result<()>) -> Result<Done> {
    result.map(|()| Done::Whole)
}

fn soft_roce() -> Result<Done> {
    let mut skipped = Vec::new();
    for hosts in [1, 2] {
        match soft_roce::suite(hosts, Share::Regular)?.outcome {
            soft_roce::Outcome::Passed => {}
            soft_roce::Outcome::Failed(reason) => bail!("on {hosts} host(s): {reason}"),
            soft_roce::Outcome::Skipped(reason) if workspace::in_ci() => {
                bail!("did not take place: {reason}")
            }
            soft_roce::Outcome::Skipped(reason) => skipped.push(format!("{hosts} host(s) skipped: {reason}")),
        }
    }
    Ok(if skipped.is_empty() { Done::Whole } else { Done::Partly(skipped.join("; ")) })
}
