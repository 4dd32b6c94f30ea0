//! Our twins and the KV program beside perftest, on one RDMA device.
//!
//! `cargo xtask soft-roce -- target/release/soft_roce` runs it on the kernel's soft-RoCE; it needs our programs
//! built beside it, and perftest installed.

use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use benches::only::OnlyArgs;
use benches::peers::{perftest_figure, serve_and_run};
use benches::preparing::{self, Moved, Pushed};
use benches::programs;
use benches::ratio::{Bound, HEAD, Row};
use benches::report::{Report, SaveArgs};
use clap::Parser;
use rdma_core::DeviceList;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Where perftest's servers, and ours, listen.
const PORT: u16 = 18515;
/// Column of the average bandwidth in perftest's bandwidth table.
const BANDWIDTH: usize = 3;
/// Column of the message rate there.
const RATE: usize = 4;
/// Column of the typical latency in perftest's latency table.
const TYPICAL: usize = 4;

/// Ratios against perftest in one run.
#[derive(Parser)]
struct Args {
    /// The device.
    #[arg(long, default_value = "rxe0")]
    device: String,
    /// The GID, by its index.
    #[arg(long, default_value_t = 1)]
    gid_index: u32,
    /// Interleaved pairs a row.
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    #[command(flatten)]
    only: OnlyArgs,
    #[command(flatten)]
    save: SaveArgs,
}

/// How a row of perftest is run.
struct Spec {
    name: &'static str,
    ours: &'static str,
    theirs: &'static str,
    bytes: u64,
    flags: &'static [&'static str],
    column: usize,
    unit: &'static str,
    bound: Bound,
}

const DEPTH: &[&str] = &["-t", "128", "-Q", "100", "-m", "4096", "-F"];

/// A bandwidth test of both, in MB/s, at least 0.95 of perftest's.
fn bandwidth(
    name: &'static str,
    [ours, theirs]: [&'static str; 2],
    bytes: u64,
    flags: &'static [&'static str],
) -> Spec {
    Spec { name, ours, theirs, bytes, flags, column: BANDWIDTH, unit: "MB/s", bound: Bound::AtLeast(0.95) }
}

/// A latency test of both at 2 B, at most `bound` times perftest's.
fn latency(name: &'static str, [ours, theirs]: [&'static str; 2], bound: f64) -> Spec {
    let flags = &["-n", "3000", "-F", "-m", "4096"];
    Spec { name, ours, theirs, bytes: 2, flags, column: TYPICAL, unit: "us", bound: Bound::AtMost(bound) }
}

fn specs() -> Vec<Spec> {
    let write = ["write_bw", "ib_write_bw"];
    let rate = bandwidth("write message rate, 64 B", write, 64, &["-n", "20000"]);
    vec![
        bandwidth("write bandwidth, 64 KiB", write, 65_536, &["-n", "1500"]),
        bandwidth("write bandwidth, 1 MiB", write, 1 << 20, &["-n", "100"]),
        Spec { column: RATE, unit: "Mpps", bound: Bound::AtLeast(0.9), ..rate },
        latency("write latency, 2 B", ["write_lat", "ib_write_lat"], 1.15),
        bandwidth("read bandwidth, 64 KiB", ["read_bw", "ib_read_bw"], 65_536, &["-n", "1500"]),
        latency("read latency, 2 B", ["read_lat", "ib_read_lat"], 1.1),
        bandwidth("send bandwidth, 64 KiB", ["send_bw", "ib_send_bw"], 65_536, &["-n", "1500"]),
        latency("send latency, 2 B", ["send_lat", "ib_send_lat"], 1.1),
    ]
}

fn main() -> ExitCode {
    benches::main("soft_roce", run)
}

fn run(args: &Args) -> Result<bool> {
    let (mut report, mut all_hold) = (Report::default(), true);
    println!(
        "device {}, GID index {}, MTU 4096, depth 128, moderation 100\n{HEAD}",
        args.device, args.gid_index
    );
    for spec in specs().iter().filter(|spec| args.only.has(spec.name)) {
        let row = Row::measure(
            spec.name,
            spec.unit,
            spec.bound,
            args.pairs,
            || ours(args, spec),
            || theirs(args, spec),
        )?;
        all_hold &= report.row(&row);
    }
    if args.only.has("KV transfer in 64 KiB blocks") {
        let reference = &specs()[0];
        let bound = Bound::AtLeast(0.9);
        let name = "KV transfer in 64 KiB blocks against ib_write_bw at 64 KiB";
        let row = Row::measure(
            name,
            "MB/s",
            bound,
            args.pairs,
            || programs::kv(&args.device),
            || theirs(args, reference),
        )?;
        all_hold &= report.row(&row);
    }
    all_hold &= key_values(args, &mut report)?;
    all_hold &= all_reduces(args, &mut report)?;
    report.save(&args.save, "soft_roce")?;
    Ok(all_hold)
}

/// All-reduces between two ranks, beside one write of perftest's.
fn all_reduces(args: &Args, report: &mut Report) -> Result<bool> {
    let mut all_hold = true;
    let name = "all-reduce of 8 B, 2 ranks, against half a round trip of ib_write_lat";
    if args.only.has(name) {
        let arguments = ["--device", &args.device].map(str::to_owned);
        let ours = || Ok(programs::all_reduce_times(&arguments, 2, (8, 8), 3000)?[0].1);
        let reference = Spec { bytes: 8, ..latency(name, ["write_lat", "ib_write_lat"], 1.6) };
        let row = Row::measure(name, "us", reference.bound, args.pairs, ours, || theirs(args, &reference))?;
        all_hold &= report.row(&row);
    }
    // Where the processor is emulated, adding floats costs as much as sending them: so integers, too.
    let types = ["int32", "float"];
    let sizes = [(1 << 20, 20), (4 << 20, 6)];
    for (data_type, (bytes, iterations)) in types.into_iter().flat_map(|one| sizes.map(|size| (one, size))) {
        let what = format!("all-reduce of {data_type}, 2 ranks, {} MiB", bytes >> 20);
        let name = format!("{what}, against one direction of ib_write_bw -b");
        if !args.only.has(&name) {
            continue;
        }
        let arguments = ["--device", &args.device, "-d", data_type].map(str::to_owned);
        let ours = || programs::all_reduce(&arguments, 2, bytes, iterations);
        let theirs = || one_of_both_directions(args, bytes);
        let row = Row::measure(&name, "GB/s", Bound::AtLeast(0.9), args.pairs, ours, theirs)?;
        all_hold &= report.row(&row);
    }
    Ok(all_hold)
}

/// KV transfers with both ends in this process.
fn key_values(args: &Args, report: &mut Report) -> Result<bool> {
    let mut all_hold = true;
    for (moved, what, share) in [
        (Moved::Blocks, "KV of 4096 blocks of 64 KiB", 0.01),
        (Moved::HalfOfHeads, "KV, TP 1 to 2, NHD", 0.1),
    ] {
        let name = format!("planning and requests, {what}, against all of it");
        if args.only.has(&name) {
            let pairs = pushes(args, moved, |pushed| (pushed.preparing, pushed.took))?;
            all_hold &= report.row(&Row { name, unit: "s", bound: Bound::AtMost(share), pairs });
        }
    }
    let name = "bytes a request, KV, TP 1 to 2, NHD, against 4 KiB".to_owned();
    if args.only.has(&name) {
        let pairs = pushes(args, Moved::HalfOfHeads, |pushed| {
            (pushed.bytes as f64 / f64::from(pushed.writes), 4096.0)
        })?;
        all_hold &= report.row(&Row { name, unit: "B", bound: Bound::AtLeast(1.0), pairs });
    }
    let name = "KV, TP 1 to 2, NHD, against ib_write_bw of as many bytes a request";
    if args.only.has(name) {
        let mut link = link(args, Moved::HalfOfHeads)?;
        let first = link.push().map_err(|error| error.to_string())?;
        let reference = Spec { bytes: first.bytes / u64::from(first.writes), ..specs()[0] };
        let ours = || {
            let pushed = link.push().map_err(|error| error.to_string())?;
            Ok(pushed.bytes as f64 / pushed.took / f64::from(1 << 20))
        };
        let row =
            Row::measure(name, "MB/s", Bound::AtLeast(0.8), args.pairs, ours, || theirs(args, &reference))?;
        all_hold &= report.row(&row);
    }
    Ok(all_hold)
}

fn link(args: &Args, moved: Moved) -> Result<preparing::Link> {
    let context = DeviceList::probe().find(&args.device)?.open()?;
    Ok(preparing::Link::new(&context, Some(args.gid_index), moved).map_err(|error| error.to_string())?)
}

/// Both figures of a pair are of one transfer.
fn pushes(args: &Args, moved: Moved, of: impl Fn(Pushed) -> (f64, f64)) -> Result<Vec<(f64, f64)>> {
    let mut link = link(args, moved)?;
    let pairs = (0..args.pairs).map(|_| link.push().map(&of).map_err(|error| error.to_string()));
    Ok(pairs.collect::<std::result::Result<_, _>>()?)
}

fn ours(args: &Args, spec: &Spec) -> Result<f64> {
    figure(args, spec, programs::beside(spec.ours)?)
}

fn theirs(args: &Args, spec: &Spec) -> Result<f64> {
    figure(args, spec, PathBuf::from(spec.theirs))
}

fn figure(args: &Args, spec: &Spec, program: PathBuf) -> Result<f64> {
    let command = || {
        let mut command = Command::new(&program);
        command.args(["-d", &args.device, "-x", &args.gid_index.to_string(), "-s", &spec.bytes.to_string()]);
        command.args(spec.flags);
        if spec.ours.ends_with("_bw") {
            command.args(DEPTH);
        }
        command
    };
    let mut client = command();
    client.arg("127.0.0.1");
    perftest_figure(&serve_and_run(command(), client, PORT)?, spec.bytes, spec.column)
}

/// Bandwidth of one direction of `ib_write_bw -b`, in GB/s of 10^9, because both
/// links of a ring of two carry data both ways.
fn one_of_both_directions(args: &Args, bytes: u64) -> Result<f64> {
    let spec = bandwidth("both directions", ["write_bw", "ib_write_bw"], bytes, &["-n", "60", "-b"]);
    Ok(theirs(args, &spec)? * f64::from(1 << 20) / 1e9 / 2.0)
}
