//! Memory that an all-reduce needs beyond the caller's buffer, by rank: the peak of the process (VmHWM, shared memory
//! included), less the buffer and the process before it touched the library. The software device is measured over TCP,
//! because memory that ranks share counts for each of them that touches it.
//!
//! `cargo run --release -p benches --bin memory`; exit status 1 when a rank needs more than 8 MiB.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use benches::footprint;
use benches::ranks;
use benches::ratio::Bound;
use benches::report::{Line, Report, SaveArgs};
use clap::Parser;
use rdma_collective::bootstrap::{LocalRanks, StoreClient};
use rdma_core::{Deadline, Device, DeviceList, SoftOptions, Wire};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The memory that an all-reduce may need beyond the buffer, in MiB.
const EXTRA_MIB: Bound = Bound::AtMost(8.0);
/// The longest that the ranks of one size may take.
const LIMIT: Duration = Duration::from_secs(300);

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
    #[command(flatten)]
    save: SaveArgs,
}

fn main() -> ExitCode {
    benches::main("memory", run)
}

fn run(args: &Args) -> Result<bool> {
    let before = footprint::resident()?;
    let deadline = Deadline::after(LIMIT);
    if let Some(join) = LocalRanks::joined()? {
        let bytes = args.bytes.ok_or("a rank is told how many bytes")?;
        let mut store = StoreClient::connect(join, deadline)?;
        let device = match args.device.as_str() {
            "soft" => Device::soft(SoftOptions { wire: Wire::Tcp, ..SoftOptions::default() }),
            name => DeviceList::probe().find(name)?.clone(),
        };
        let extra = footprint::rank(&device, bytes, before, &mut store, deadline)?.beyond_buffer;
        ranks::say(store.rank(), extra as f64 / f64::from(1 << 20));
        return Ok(true);
    }
    println!("| bytes | process | beyond the buffer | bound | |\n|---|---|---|---|---|");
    let sizes = args.bytes.map_or_else(|| vec![1 << 20, 1 << 30], |bytes| vec![bytes]);
    let (mut report, mut all_hold) = (Report::default(), true);
    for bytes in sizes {
        let arguments = ["--bytes", &bytes.to_string(), "--device", &args.device].map(Into::into);
        for (rank, mib) in (0..).zip(ranks::figures(args.ranks, &arguments, LIMIT)?) {
            let (size, of) = (bytes >> 20, args.ranks);
            let word = EXTRA_MIB.verdict(mib);
            println!("| {size} MiB | rank {rank} of {of} | {mib:.2} MiB | {EXTRA_MIB} MiB | {word} |");
            let what = format!("memory beyond the buffer, all-reduce of {size} MiB, rank {rank} of {of}");
            report.line(Line::single(what, "MiB", mib, EXTRA_MIB));
            all_hold &= EXTRA_MIB.holds(mib);
        }
    }
    report.save(&args.save, "memory")?;
    Ok(all_hold)
}
