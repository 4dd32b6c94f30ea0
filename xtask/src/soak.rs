//! `cargo xtask soak`: the tests that repeat themselves, with their full counts. The tests themselves do a tenth of
//! them, or less, when nobody asks for more; of the faults between two hosts CI has some.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};

use crate::cargo::{self, cargo};
use crate::soft_roce::{self, Outcome, Share};
use crate::tally::Counts;
use crate::{ci, process, programs, test, workspace};

/// The longest that one suite may take.
const LIMIT: Duration = Duration::from_secs(3600);

/// How often each fault comes between two hosts.
const TWO_HOSTS_ROUNDS: u32 = 3;

const CHAOS: &[&str] = &["test", "-p", "examples", "--test", "chaos", "--no-fail-fast"];
/// Two jobs at one port, in many orders of their ranks.
const JOBS: &[&str] = &["test", "-p", "examples", "--test", "jobs", "--no-fail-fast"];
/// Barriers among ranks that are killed: a test of the library, because no program makes only barriers.
const BARRIERS: &[&str] = &["test", "-p", "rdma-collective", "--test", "processes", "among_barriers"];
/// All-reduces among named hosts whose ranks are killed, by the test itself at moments of its choice.
const NAMED_HOSTS: &[&str] =
    &["test", "-p", "rdma-collective", "--test", "processes", "amid_an_all_reduce_of_several_hosts"];
/// Every algorithm between hosts of namespaces, right and through every loss.
const HOSTS: &[&str] =
    &["test", "-p", "examples", "--test", "hosts", "--no-fail-fast", "--", "--show-output"];
/// Tests of the mapped wire, run one at a time because they measure how long things take.
const MAPPED: &[&str] = &[
    "test",
    "-p",
    "rdma-core",
    "--test",
    "mapped",
    "--no-fail-fast",
    "--",
    "--test-threads=1",
    // How long the slowest took.
    "--show-output",
];
const KILLED: &[&str] = &["test", "-p", "rdma-collective", "--test", "killed", "--", "--nocapture"];
/// Ranks that are killed and stopped while they meet, connect and close; one at a time, because each must be found out
/// within a second.
const KILLED_RANKS: &[&str] = &[
    "test",
    "-p",
    "rdma-collective",
    "--test",
    "killed_ranks",
    "--no-fail-fast",
    "--",
    "--test-threads=1",
    "--nocapture",
];
const TRANSFERS: &[&str] =
    &["test", "-p", "rdma-collective", "--test", "transfers", "--no-fail-fast", "faulty::"];
/// Blocks that are taken back from a process that pushes for ever, one wire at a time because each keeps two
/// processors busy.
const REVOCATION: &[&str] =
    &["test", "-p", "rdma-collective", "--test", "revocation", "--", "--test-threads=1", "--nocapture"];
/// A prefill of a strict link that says it has stopped, and writes on.
const STRICT: &[&str] =
    &["test", "-p", "rdma-collective", "--lib", "trust::strict::", "--", "--test-threads=1"];
/// Nodes that join, leave and are killed while requests run.
const STORM: &[&str] = &[
    "test",
    "-p",
    "rdma-collective",
    "--test",
    "node",
    "storm::",
    "--",
    "--test-threads=1",
    "--show-output",
];
const LANES: &[&str] = &["test", "-p", "rdma-collective", "--test", "lanes", "--", "--nocapture"];
const ROUNDS: &[&str] = &[
    "test",
    "-p",
    "rdma-collective",
    "--test",
    "rounds",
    "--test",
    "rank_rounds",
    "--no-fail-fast",
    "--",
    "--include-ignored",
    // Each reads the books of the process.
    "--test-threads=1",
];

/// Unit tests of schedules and of arithmetic, of which a plain run does every few cases.
const EXHAUSTIVE: &[&str] = &["test", "-p", "rdma-collective", "--lib", "--no-fail-fast", "collective::"];

/// The demo of the servers, `$0` being `mini_server` and `$1` its model: over 500 requests, of which a fifth is
/// aborted, while a prefill, a decode and the router are killed. One thread a model, because its products cost less
/// than a second thread. Few requests at once, so that they do not queue up where the guest is slow.
const DEMO: &str = r#"exec env RAYON_NUM_THREADS=1 "$0" demo --device "$ROCE_DEVICE" --model "$1" \
    --page "$ROCE_OUT/demo.html" --seconds 560 --rate 2 --at-once 4 --answers 400"#;
/// The model of the demo: a tiny one, because an emulated processor computes the usual one too slowly.
const MODEL: &str = "servers/models/tiny.json";

/// Options of `cargo xtask soak`.
#[derive(Parser)]
pub struct Args {
    /// Suites to run [default: all].
    #[arg(value_enum)]
    suites: Vec<Suite>,
    /// The seed that a failure of `chaos` or `mapped` has printed, to see it again.
    #[arg(long)]
    seed: Option<u64>,
}

/// A suite: tests that run together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Processes that are killed, stopped and beset by strangers.
    Chaos,
    /// Ranks that are killed and hosts that vanish, between namespaces of this machine.
    Hosts,
    /// Links and communicators that are made and closed over and over.
    Rounds,
    /// KV transfers of random blocks between ends that have trouble.
    Transfers,
    /// KV blocks that are taken back while another process pushes into them.
    Revocation,
    /// KV nodes that join, leave and are killed while requests run.
    Storm,
    /// Devices of ranks that die one by one.
    Lanes,
    /// Processes that write memory while it is taken back from them, and such as are killed, on the mapped wire.
    Mapped,
    /// Every case of schedules and of arithmetic.
    Exhaustive,
    /// More tests under AddressSanitizer, and the fuzz targets for longer.
    Instrumented,
    /// Processes that are killed on a host with soft-RoCE.
    SoftRoce,
    /// Faults of the network between two hosts with soft-RoCE.
    TwoHosts,
    /// `rdma-tools pingpong` with the C program as its peer, and the other tools beside theirs, on one host with
    /// soft-RoCE and between two.
    Pingpong,
    /// The demo of the servers on a host with soft-RoCE.
    Demo,
}

/// Runs the suites, and fails when one of them does.
pub fn main(args: &Args) -> Result<()> {
    let suites = if args.suites.is_empty() { Suite::value_variants() } else { &args.suites };
    let mut failed = Vec::new();
    for suite in suites {
        let outcome = match suite {
            Suite::Chaos => {
                let suites = [CHAOS, JOBS, BARRIERS, NAMED_HOSTS, KILLED_RANKS];
                suites.into_iter().try_for_each(|suite| tests(suite, args))
            }
            Suite::Hosts => tests(HOSTS, args),
            Suite::Rounds => tests(ROUNDS, args),
            Suite::Transfers => tests(TRANSFERS, args),
            Suite::Revocation => tests(REVOCATION, args).and_then(|()| tests(STRICT, args)),
            Suite::Storm => tests(STORM, args),
            Suite::Lanes => tests(LANES, args),
            Suite::Mapped => tests(MAPPED, args).and_then(|()| tests(KILLED, args)),
            Suite::Exhaustive => tests(EXHAUSTIVE, args),
            Suite::Instrumented => ci::soak_instrumented(),
            Suite::SoftRoce => on_soft_roce(1, Share::Soak, 1),
            Suite::TwoHosts => on_soft_roce(2, Share::Soak, TWO_HOSTS_ROUNDS),
            Suite::Pingpong => on_soft_roce(1, Share::Tools, 1).and(on_soft_roce(2, Share::Tools, 1)),
            Suite::Demo => demo_on_soft_roce(),
        };
        if let Err(error) = outcome {
            println!("error: {error:#}");
            failed
                .push(suite.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default());
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

/// Tests that count for themselves.
fn tests(test: &[&str], args: &Args) -> Result<()> {
    let mut command = cargo(test)?;
    command.env("SOAK", "full");
    if let Some(seed) = args.seed {
        command.env("SOAK_SEED", seed.to_string());
    }
    let (status, output) = process::run_shown(&mut command, LIMIT)?;
    match Counts::read(&output) {
        _ if !status.success() => bail!("cargo ended with {status}"),
        // A name that no test has any more.
        None | Some(Counts { passed: 0, .. }) => bail!("`cargo {}` ran no test", test.join(" ")),
        Some(_) => Ok(()),
    }
}

/// Every fault, some times over; between two hosts each time costs a host, and so takes new ones.
fn on_soft_roce(hosts: u8, share: Share, rounds: u32) -> Result<()> {
    let mut rows = Vec::new();
    for _ in 0..rounds {
        let run = soft_roce::suite(hosts, share)?;
        rows.extend(run.rows);
        if let Outcome::Skipped(reason) = run.outcome {
            bail!("did not take place: {reason}");
        }
    }
    test::conclude(&rows)
}

/// The demo of the servers, which compares every answer and fails for each request that no kill explains.
fn demo_on_soft_roce() -> Result<()> {
    let built = cargo::build(&mut cargo(programs::SERVERS)?)?;
    let server =
        built.iter().find(|built| built.name == "mini_server").context("cargo built no mini_server")?;
    let model = workspace::root()?.join(MODEL);
    let command = ["bash".into(), "-c".into(), DEMO.into(), server.path.clone().into(), model.into()];
    match soft_roce::command(command.to_vec(), LIMIT)? {
        Outcome::Passed => Ok(()),
        Outcome::Failed(reason) => bail!("{reason}"),
        Outcome::Skipped(reason) => bail!("did not take place: {reason}"),
    }
}
