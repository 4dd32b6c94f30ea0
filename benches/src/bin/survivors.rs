//! The time until the others know that a rank of their host was killed: from just before the signal to the error of
//! each survivor's all-reduce, which has to name the rank.
//!
//! `cargo run --release -p benches --bin survivors`; exit status 1 when the worst of all takes longer than 50 ms.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode};
use std::time::Duration;

use benches::ratio::{Bound, median};
use benches::report::{Line, Report, SaveArgs};
use clap::Parser;
use rdma_collective::bootstrap::{LocalRanks, StoreClient};
use rdma_collective::collective::ReduceOp;
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_core::{Deadline, Device, SoftOptions};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Milliseconds that the worst may take.
const WORST_MS: Bound = Bound::AtMost(50.0);
/// Bytes of the all-reduces that the ranks are in.
const SIZES: [usize; 4] = [8, 4 << 10, 256 << 10, 16 << 20];
/// The kill comes within that many microseconds after all have begun.
const MOMENTS_US: u64 = 20_000;
const PATIENCE: Duration = Duration::from_secs(60);
const READY: &str = "ready";

/// Kills ranks, and times the others.
#[derive(Parser)]
struct Args {
    /// Ranks killed, of each size as many.
    #[arg(long, default_value_t = 100)]
    kills: u64,
    /// Ranks, each a process.
    #[arg(long, default_value_t = 4)]
    ranks: u32,
    /// Bytes of a rank's all-reduces.
    #[arg(long, hide = true)]
    bytes: Option<usize>,
    #[command(flatten)]
    save: SaveArgs,
}

fn main() -> ExitCode {
    benches::main("survivors", run)
}

fn run(args: &Args) -> Result<bool> {
    if let Some(join) = LocalRanks::joined()? {
        let mut store = StoreClient::connect(join, Deadline::after(PATIENCE))?;
        return rank(&mut store, args.bytes.ok_or("a rank is told how many bytes")?).map(|()| true);
    }
    println!("| a rank of {} killed in all-reduces of | kills | median | worst | bound | |", args.ranks);
    println!("|---|---|---|---|---|---|");
    let (mut report, mut all_hold) = (Report::default(), true);
    for (at, bytes) in (0..).zip(SIZES) {
        let kills = args.kills.div_ceil(SIZES.len() as u64);
        let mut times = Vec::new();
        for round in 0..kills {
            times.extend(kill_one(args.ranks, bytes, at * kills + round)?);
        }
        let worst = times.iter().copied().fold(0.0, f64::max);
        let verdict = WORST_MS.verdict(worst);
        println!(
            "| {bytes} B | {kills} | {:.2} ms | {worst:.2} ms | {WORST_MS} ms | {verdict} |",
            median(times)
        );
        let what =
            format!("the worst of {kills} kills of a rank of {}, in all-reduces of {bytes} B", args.ranks);
        report.line(Line::single(what, "ms", worst, WORST_MS));
        all_hold &= WORST_MS.holds(worst);
    }
    report.save(&args.save, "survivors")?;
    Ok(all_hold)
}

/// Kills a rank, and returns the milliseconds until each of the others knew.
fn kill_one(ranks: u32, bytes: usize, round: u64) -> Result<Vec<f64>> {
    let (told, tell) = std::io::pipe()?;
    let program = std::env::current_exe()?;
    let mut failed = None;
    let spawned = LocalRanks::spawn(ranks, |_| {
        let mut command = Command::new(&program);
        command.args(["--bytes", &bytes.to_string()]);
        match tell.try_clone() {
            Ok(tell) => drop(command.stdout(tell)),
            Err(error) => failed = Some(error),
        }
        command
    })?;
    drop(tell);
    failed.map_or(Ok(()), Err)?;
    let mut lines = BufReader::new(told).lines();
    for _ in 0..ranks {
        let line = lines.next().ok_or("a rank has ended before it began")??;
        if line != READY {
            return Err(line.into());
        }
    }
    let mixed = (round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (victim, moment) = ((mixed >> 40) % u64::from(ranks), (mixed >> 8) % MOMENTS_US);
    let process = spawned.processes().find(|(rank, _)| u64::from(*rank) == victim);
    let pid = process.and_then(|(_, pid)| Pid::from_raw(pid as i32)).ok_or("the rank has ended")?;
    std::thread::sleep(Duration::from_micros(moment));
    let killed = now_ns();
    kill_process(pid, Signal::KILL)?;
    let mut times = Vec::new();
    let lines = lines.collect::<std::result::Result<Vec<String>, _>>()?;
    for line in &lines {
        let (at, error) = line.split_once(' ').ok_or_else(|| format!("not what a survivor says: {line}"))?;
        if !error.contains(&format!("rank {victim} ")) {
            return Err(
                format!("rank {victim} was killed, and the survivors say: {}", lines.join("\n")).into()
            );
        }
        times.push(at.parse::<u64>()?.saturating_sub(killed) as f64 / 1e6);
    }
    if times.len() as u32 + 1 != ranks {
        return Err(format!("{} of {} survivors have told", times.len(), ranks - 1).into());
    }
    // The error names the rank that was killed.
    let _ = spawned.wait(Deadline::after(PATIENCE));
    Ok(times)
}

/// Reduces until that fails, and tells when it did and why.
fn rank(store: &mut StoreClient, bytes: usize) -> Result<()> {
    let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
    let options = CommunicatorOptions::default();
    let mut comm = Communicator::new(&engine, store, options, Deadline::after(PATIENCE))?;
    let mut data = vec![0.0_f32; bytes / size_of::<f32>()];
    comm.all_reduce(&mut data, ReduceOp::Sum, Deadline::after(PATIENCE))?;
    println!("{READY}");
    std::io::stdout().flush()?;
    loop {
        if let Err(error) = comm.all_reduce(&mut data, ReduceOp::Sum, Deadline::after(PATIENCE)) {
            println!("{} rank {}: {error}", now_ns(), comm.rank());
            std::io::stdout().flush()?;
            return Ok(());
        }
    }
}

/// Nanoseconds of the clock that all processes share.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
