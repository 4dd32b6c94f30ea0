//! Our twins and the KV program beside perftest, on one RDMA device: the rows of "soft-RoCE" in RESULTS.md.
//!
//! `cargo xtask soft-roce -- target/release/soft_roce` runs it on the kernel's soft-RoCE; it needs
//! `write_bw`, `write_lat` and `kvcache_transfer` built beside it, and perftest installed.

use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use benches::peers::{perftest_figure, serve_and_run};
use benches::ratio::{Bound, HEAD, Row};
use clap::Parser;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

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
    /// Only the rows whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
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

fn specs() -> [Spec; 4] {
    let bandwidth = |name, bytes, flags, column, unit, bound| Spec {
        name,
        ours: "write_bw",
        theirs: "ib_write_bw",
        bytes,
        flags,
        column,
        unit,
        bound: Bound::AtLeast(bound),
    };
    [
        bandwidth("write bandwidth, 64 KiB", 65_536, &["-n", "1500"], BANDWIDTH, "MB/s", 0.95),
        bandwidth("write bandwidth, 1 MiB", 1 << 20, &["-n", "100"], BANDWIDTH, "MB/s", 0.95),
        bandwidth("write message rate, 64 B", 64, &["-n", "20000"], RATE, "Mpps", 0.9),
        Spec {
            name: "write latency, 2 B",
            ours: "write_lat",
            theirs: "ib_write_lat",
            bytes: 2,
            flags: &["-n", "3000", "-F", "-m", "4096"],
            column: TYPICAL,
            unit: "us",
            bound: Bound::AtMost(1.15),
        },
    ]
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("soft_roce: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let mut all_hold = true;
    println!(
        "device {}, GID index {}, MTU 4096, depth 128, moderation 100\n{HEAD}",
        args.device, args.gid_index
    );
    for spec in specs().iter().filter(|spec| spec.name.contains(&args.only)) {
        let row = Row::measure(
            spec.name,
            spec.unit,
            spec.bound,
            args.pairs,
            || ours(args, spec),
            || theirs(args, spec),
        )?;
        println!("{row}");
        all_hold &= row.holds();
    }
    if "KV transfer".contains(&args.only) {
        let reference = &specs()[0];
        let bound = Bound::AtLeast(0.8);
        let name = "KV transfer in 64 KiB blocks against ib_write_bw at 64 KiB";
        let row = Row::measure(name, "MB/s", bound, args.pairs, || kv(args), || theirs(args, reference))?;
        println!("{row}");
        all_hold &= row.holds();
    }
    Ok(all_hold)
}

fn ours(args: &Args, spec: &Spec) -> Result<f64> {
    figure(args, spec, beside(spec.ours)?)
}

fn theirs(args: &Args, spec: &Spec) -> Result<f64> {
    figure(args, spec, PathBuf::from(spec.theirs))
}

fn figure(args: &Args, spec: &Spec, program: PathBuf) -> Result<f64> {
    let command = || {
        let mut command = Command::new(&program);
        command.args(["-d", &args.device, "-x", &args.gid_index.to_string(), "-s", &spec.bytes.to_string()]);
        command.args(spec.flags);
        if spec.ours == "write_bw" {
            command.args(DEPTH);
        }
        command
    };
    let mut client = command();
    client.arg("127.0.0.1");
    perftest_figure(&serve_and_run(command(), client, PORT)?, spec.bytes, spec.column)
}

/// MB/s, in perftest's 2^20, of a transfer whose blocks are 64 KiB.
fn kv(args: &Args) -> Result<f64> {
    let mut command = Command::new(beside("kvcache_transfer")?);
    command.args([
        "--device",
        &args.device,
        "--model",
        "llama-3.1-8b",
        "--block",
        "16",
        "--prompt",
        "1024",
        "--json",
    ]);
    let output = command.output()?;
    if !output.status.success() {
        return Err(
            format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into()
        );
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let gigabytes = report["gigabytes_per_second"].as_f64().ok_or("no gigabytes_per_second in the report")?;
    Ok(gigabytes * 1e9 / f64::from(1 << 20))
}

fn beside(program: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(program);
    if path.exists() { Ok(path) } else { Err(format!("{} is not built", path.display()).into()) }
}
