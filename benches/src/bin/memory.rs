//! What an all-reduce needs beyond the caller's buffer, by rank: the peak of the process (VmHWM, shared memory
//! included), less the buffer and what the process was before it touched the library. The software device is measured over
//! TCP: memory that ranks share counts for each of them that touches it.
//!
//! `cargo run --release -p benches --bin memory`; exit status 1 when a rank needs more than 8 MiB.

use std::error::Error;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use rdma_collective::bootstrap::{LocalRanks, StoreClient};
use rdma_collective::collective::ReduceOp;
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_core::{Deadline, Device, DeviceList, SoftOptions, Wire};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// What an all-reduce may need beyond the buffer.
const EXTRA_BYTES_MAX: u64 = 8 << 20;

/// Memory that an all-reduce needs beyond the caller's buffer.
#[derive(Parser)]
struct Args {
    /// Bytes to reduce; 1 MiB and 1 GiB when not given.
    #[arg(long)]
    bytes: Option<u64>,
    /// Ranks, each a process.
    #[arg(long, default_value_t = 2)]
    ranks: u32,
    /// `soft`, or a device's name.
    #[arg(long, default_value = "soft")]
    device: String,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("memory: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let before = status("VmRSS")?;
    let deadline = Deadline::after(Duration::from_secs(300));
    if let Some(join) = LocalRanks::joined()? {
        let bytes = args.bytes.ok_or("a rank is told how many bytes")?;
        let mut store = StoreClient::connect(join, deadline)?;
        let extra = rank(args, bytes, before, &mut store, deadline)?;
        let holds = extra <= EXTRA_BYTES_MAX;
        println!(
            "| {} MiB | rank {} of {} | {:.2} MiB | <= 8 MiB | {} |",
            bytes >> 20,
            store.rank(),
            store.world(),
            extra as f64 / f64::from(1 << 20),
            if holds { "holds" } else { "DOES NOT HOLD" }
        );
        return Ok(holds);
    }
    println!("| bytes | process | beyond the buffer | bound | |\n|---|---|---|---|---|");
    let sizes = args.bytes.map_or_else(|| vec![1 << 20, 1 << 30], |bytes| vec![bytes]);
    let mut all_hold = true;
    for bytes in sizes {
        let command = |_| {
            let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| "memory".into()));
            command.args(["--bytes", &bytes.to_string(), "--device", &args.device]);
            command
        };
        all_hold &= LocalRanks::spawn(args.ranks, command)?.wait(deadline).is_ok();
    }
    Ok(all_hold)
}

/// Reduces once, and tells how far the peak is beyond what the process was and the buffer.
fn rank(args: &Args, bytes: u64, before: u64, store: &mut StoreClient, deadline: Deadline) -> Result<u64> {
    let device = match args.device.as_str() {
        "soft" => Device::soft(SoftOptions { wire: Wire::Tcp, ..SoftOptions::default() }),
        name => DeviceList::probe().find(name)?.clone(),
    };
    let engine = Engine::new(&device.open()?, EngineOptions::default())?;
    let mut communicator = Communicator::new(&engine, store, CommunicatorOptions::default(), deadline)?;
    let mut buffer = vec![1.0_f32; usize::try_from(bytes)? / 4];
    communicator.all_reduce(&mut buffer, ReduceOp::Sum, deadline)?;
    let sum = store.world() as f32; // each rank's elements are 1
    if buffer.iter().any(|value| *value != sum) {
        return Err("the sum is wrong".into());
    }
    let peak = status("VmHWM")?;
    communicator.close(deadline)?;
    Ok(peak.saturating_sub(bytes).saturating_sub(before))
}

/// A figure of `/proc/self/status`, in bytes.
fn status(name: &str) -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let figure = line.and_then(|line| line.split_whitespace().next()).ok_or_else(|| format!("no {name}"))?;
    Ok(figure.parse::<u64>()? * 1024)
}
