//! All-reduce and other collectives between processes of one host beside what people would use instead, from a few bytes on, and what an engine
//! costs that has nothing to do.
//!
//! `cargo run --release -p benches --bin collectives`, with `allreduce` built beside it. Peers are looked for under the
//! folder that the variable `PEERS` names (`venv-torch/bin/python` for gloo, `build/allreduce-impi` and `-mpi5` for MPIs); one that is not there is not measured.

use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use benches::programs;
use benches::ratio::median;
use benches::ratio::{Bound, HEAD, Row};
use benches::small::{self, Collective};
use clap::{Parser, ValueEnum};
use rdma_collective::collective::ReduceOp;
use rdma_collective::comm::bootstrap::{LocalRanks, StoreClient};
use rdma_collective::comm::{Communicator, CommunicatorOptions, Engine, EngineOptions};
use rdma_core::{Deadline, Device, SoftOptions, Wire};
use rustix::time::ClockId;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// What an engine that has nothing to do may take of a core.
const IDLE_MAX: f64 = 0.01;
/// How long it is watched.
const IDLE_FOR: Duration = Duration::from_secs(5);

/// Ratios of all-reduce in one run.
#[derive(Parser)]
struct Args {
    /// Interleaved pairs a row.
    #[arg(long, default_value_t = 7)]
    pairs: usize,
    /// Ranks, each a process.
    #[arg(long, default_value_t = 2)]
    ranks: u32,
    /// Only what is beside MPIs.
    #[arg(long)]
    only_small: bool,
    /// Beside MPIs: these collectives, one table each.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "allreduce")]
    collectives: Vec<Collective>,
    /// Their sizes in bytes: of a rank's buffer, or of the parts of all ranks [default: powers of two from 8 to 65536]
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<usize>,
    /// Sizes that a rank times.
    #[arg(long, hide = true, value_delimiter = ',')]
    small: Vec<usize>,
    /// What a rank with nothing to do has nothing to do on.
    #[arg(long, hide = true)]
    idle: Option<String>,
}

/// Wires to another process, by name.
const WIRES: [(&str, Wire); 2] = [("tcp", Wire::Tcp), ("mapped", Wire::Mapped)];

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("collectives: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    if let Some(join) = LocalRanks::joined()? {
        let mut store = StoreClient::connect(join, Deadline::after(Duration::from_secs(60)))?;
        if !args.small.is_empty() {
            let [collective] = args.collectives[..] else { return Err("a rank times one collective".into()) };
            return small::rank(&mut store, collective, &args.small).map(|()| true);
        }
        let wanted = args.idle.as_deref();
        let wire = WIRES.into_iter().find(|(name, _)| Some(*name) == wanted).ok_or("no such wire")?;
        return idle(&mut store, wire);
    }
    if !args.small.is_empty() {
        let this = std::env::current_exe()?;
        let command = |_| {
            let mut command = Command::new(&this);
            command.args(std::env::args_os().skip(1));
            command
        };
        LocalRanks::spawn(args.ranks, command)?.wait(Deadline::after(Duration::from_secs(300)))?;
        return Ok(true);
    }
    let mut all_hold = true;
    for &collective in &args.collectives {
        all_hold &= beside_mpi(args, collective)?;
    }
    if args.only_small {
        return Ok(all_hold);
    }
    println!("\n{HEAD}");
    let over_tcp = ["--device", "soft", "--wire", "tcp", "-d", "float"].map(str::to_owned);
    for (bytes, iterations) in [(1 << 20, 200), (16 << 20, 20)] {
        let name = format!("all-reduce, {} ranks over TCP, {} MiB, against gloo", args.ranks, bytes >> 20);
        let Some(python) = gloo() else {
            println!("| {name} | | not measured | | >= 1 | |");
            all_hold = false;
            continue;
        };
        let ours = || programs::all_reduce(&over_tcp, args.ranks, bytes, iterations);
        let theirs = || {
            let mut command = Command::new(&python);
            command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/peers/gloo.py"));
            command.args([args.ranks.to_string(), bytes.to_string(), iterations.to_string()]);
            let printed = String::from_utf8(programs::output(&mut command)?.stdout)?;
            printed.trim().parse::<f64>().map_err(|error| format!("{error}: {printed}").into())
        };
        let row = Row::measure(&name, "GB/s", Bound::AtLeast(1.0), args.pairs, ours, theirs)?;
        println!("{row}");
        all_hold &= row.holds();
    }
    println!("\n| an idle engine | of a core | bound | |\n|---|---|---|---|");
    for (name, _) in WIRES {
        let command = |_| {
            let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| "collectives".into()));
            command.args(["--idle", name]);
            command
        };
        all_hold &= LocalRanks::spawn(2, command)?.wait(Deadline::after(Duration::from_secs(60))).is_ok();
    }
    Ok(all_hold)
}

fn list(sizes: &[usize]) -> String {
    sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// By default sizes at which the way of a message is all that counts, against the better of both MPIs at each.
fn beside_mpi(args: &Args, collective: Collective) -> Result<bool> {
    let sizes =
        if args.sizes.is_empty() { (3..=16).map(|bits| 1 << bits).collect() } else { args.sizes.clone() };
    let sizes = collective.shared(sizes.into_iter(), args.ranks);
    let of = collective.to_possible_value().ok_or("no such collective")?;
    let peers = std::env::var_os("PEERS").map(PathBuf::from).unwrap_or_default();
    let names =
        ["impi", "mpi5"].into_iter().filter(|name| peers.join(format!("build/allreduce-{name}")).exists());
    let names: Vec<&str> = names.collect();
    // One list of times a turn: ours first, and then theirs.
    let mut turns: Vec<Vec<small::Times>> = Vec::new();
    for _ in 0..args.pairs {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--collectives", of.get_name(), "--ranks", &args.ranks.to_string()]);
        command.args(["--small", &list(&sizes)]);
        let printed = String::from_utf8(programs::output(&mut command)?.stdout)?;
        let mut turn = vec![small::parse(&printed)?];
        for name in &names {
            turn.push(small::mpi(&peers, name, collective, args.ranks, &sizes)?);
        }
        turns.push(turn);
    }
    println!(
        "| {} f32, {} ranks: us | ours | {} | best of them over ours | bound | |",
        collective.name(),
        args.ranks,
        names.join(" | ")
    );
    println!("|---|---|{}---|---|---|", "---|".repeat(names.len()));
    let mut all_hold = !names.is_empty();
    for (at, bytes) in sizes.iter().enumerate() {
        let of = |side: usize| median(turns.iter().map(|turn| turn[side][at].1).collect());
        let best = |turn: &Vec<small::Times>| {
            turn[1..].iter().map(|times| times[at].1).fold(f64::INFINITY, f64::min)
        };
        let ratio = median(turns.iter().map(|turn| best(turn) / turn[0][at].1).collect());
        let theirs: String = (1..=names.len()).map(|side| format!("{:.3} | ", of(side))).collect();
        let verdict = if ratio >= 1.0 { "holds" } else { "DOES NOT HOLD" };
        println!("| {bytes} B | {:.3} | {theirs}{ratio:.2} | >= 1 | {verdict} |", of(0));
        all_hold &= ratio >= 1.0;
    }
    Ok(all_hold)
}

/// The interpreter that has gloo.
fn gloo() -> Option<PathBuf> {
    let python = PathBuf::from(std::env::var_os("PEERS")?).join("venv-torch/bin/python");
    python.exists().then_some(python)
}

/// The processor time of a process that has a communicator and does nothing with it, as a part of the time that passes.
fn idle(store: &mut StoreClient, (name, wire): (&str, Wire)) -> Result<bool> {
    let device = Device::soft(SoftOptions { wire, ..SoftOptions::default() });
    let engine = Engine::new(&device.open()?, EngineOptions::default())?;
    let deadline = Deadline::after(Duration::from_secs(30));
    let mut comm = Communicator::new(&engine, store, CommunicatorOptions::default(), deadline)?;
    // As after work.
    comm.all_reduce(&mut [1.0_f32; 1000], ReduceOp::Sum, deadline)?;
    thread::sleep(Duration::from_millis(500));
    let before = processor_time();
    thread::sleep(IDLE_FOR);
    let part = (processor_time() - before).as_secs_f64() / IDLE_FOR.as_secs_f64();
    let verdict = if part <= IDLE_MAX { "holds" } else { "DOES NOT HOLD" };
    println!(
        "| {name}, rank {} of {} | {:.2} % | <= 1 % | {verdict} |",
        comm.rank(),
        comm.size(),
        part * 100.0
    );
    comm.close(Deadline::after(Duration::from_secs(10)))?;
    Ok(part <= IDLE_MAX)
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
