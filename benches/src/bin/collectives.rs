//! Collectives between processes of one host beside the libraries that people would use instead, from a few bytes on;
//! and the processor time of an idle engine.
//!
//! `cargo run --release -p benches --bin collectives`. The variable `PEERS` names the folder of the peers
//! (`venv-impi` for Intel MPI, `venv-mpi5` for Open MPI, `venv-torch` for gloo); one that is not there is not measured.
//! What is run of theirs, and the program that asks what the machine gives, are built by gcc from `benches/peers`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use benches::collectives::rank::Job;
use benches::collectives::{Network, Pairs, Setup, Table, picture};
use benches::ranks;
use benches::ratio::Bound;
use benches::report::{Line, Report, SaveArgs, Saved};
use benches::soft::Outcome as Result;
use clap::{Parser, Subcommand, ValueEnum};
use rdma_collective::bootstrap::{LocalRanks, StoreClient};
use rdma_collective::collective::ReduceOp;
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_core::{Deadline, Device, SoftOptions, Wire};
use rustix::time::ClockId;

/// The part of a core that an idle engine may take.
const IDLE_MAX: Bound = Bound::AtMost(0.01);
/// How long it is watched.
const IDLE_FOR: Duration = Duration::from_secs(5);

/// Ratios of collectives in one run.
#[derive(Parser)]
struct Args {
    /// Interleaved pairs a row; less where they do not end in time.
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    /// How long all tables may take together, about.
    #[arg(long, default_value_t = 9)]
    minutes: u32,
    /// Ranks, each a process.
    #[arg(long, default_value_t = 2)]
    ranks: u32,
    /// How long a size is timed, by each side.
    #[arg(long, default_value_t = 100)]
    milliseconds: u32,
    /// The best batch counts, not the median, for all sides: on a machine that does other things, too.
    #[arg(long)]
    best: bool,
    /// Only what is beside MPIs.
    #[arg(long)]
    only_small: bool,
    /// These tables [default: all].
    #[arg(long, value_enum, value_delimiter = ',')]
    collectives: Vec<Table>,
    /// Sizes in bytes: of a rank's buffer, or of the parts of all ranks [default: of each table its own]
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<usize>,
    /// Draws bus bandwidth by size to FILE: of this run, or of the one that --from names.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Measures nothing, and draws what an earlier run saved.
    #[arg(long, value_name = "SAVED", requires = "plot")]
    from: Option<PathBuf>,
    #[command(flatten)]
    save: SaveArgs,
    #[command(subcommand)]
    process: Option<Process>,
}

/// The task of a process that this program starts.
#[derive(Subcommand)]
enum Process {
    #[command(hide = true)]
    Job(Job),
    /// A rank with nothing to do, on a wire.
    #[command(hide = true)]
    Idle { wire: String },
}

/// Wires to another process, by name.
const WIRES: [(&str, Wire); 2] = [("tcp", Wire::Tcp), ("mapped", Wire::Mapped)];

fn main() -> ExitCode {
    benches::main("collectives", run)
}

fn run(args: &Args) -> Result<bool> {
    match (&args.process, &args.from, &args.plot) {
        (Some(Process::Job(job)), ..) => job.run().map(|()| true),
        (Some(Process::Idle { wire }), ..) => {
            let (_, wire) = WIRES.into_iter().find(|(name, _)| name == wire).ok_or("no such wire")?;
            idle(wire)
        }
        (None, Some(from), Some(plot)) => {
            std::fs::write(plot, picture::draw(&Saved::read(from)?.rows).to_string())?;
            Ok(true)
        }
        _ => compare(args),
    }
}

fn compare(args: &Args) -> Result<bool> {
    let setup = Setup::new(Network::Host, args.ranks, args.milliseconds, args.best)?;
    let all = if args.collectives.is_empty() { Table::value_variants() } else { &args.collectives };
    let tables = all.iter().copied().filter(|table| !args.only_small || *table != Table::Tcp);
    let sized = tables.map(|table| {
        let sizes = if args.sizes.is_empty() { table.sizes() } else { args.sizes.clone() };
        (table, table.shared(sizes, args.ranks))
    });
    let sized: Vec<(Table, Vec<usize>)> = sized.collect();
    // Cells to be timed in a table: the tables share the time that is left by them.
    let cells = |(table, sizes): &(Table, Vec<usize>)| {
        (table.sides(&setup.network).len() * sizes.len()).max(1) as f64
    };
    let (until, mut all_hold) = (Instant::now() + Duration::from_secs(60) * args.minutes, true);
    let mut report = Report::default();
    for (at, (table, sizes)) in sized.iter().enumerate() {
        let part = cells(&sized[at]) / sized[at..].iter().map(cells).sum::<f64>();
        let within = until.saturating_duration_since(Instant::now()).mul_f64(part);
        let pairs = Pairs::measure(&setup, *table, sizes, (args.pairs, within))?;
        all_hold &= table.print(&setup, &pairs, &mut report);
    }
    if !args.only_small && args.collectives.is_empty() {
        all_hold &= idle_engines(&mut report)?;
    }
    if let Some(plot) = &args.plot {
        std::fs::write(plot, picture::draw(report.rows()).to_string())?;
    }
    report.save(&args.save, &format!("collectives-{}", args.ranks))?;
    Ok(all_hold)
}

/// Prints and keeps the processor time of engines with nothing to do; returns whether each holds.
fn idle_engines(report: &mut Report) -> Result<bool> {
    println!("\n| an idle engine | of a core | bound | |\n|---|---|---|---|");
    let mut all_hold = true;
    for (name, _) in WIRES {
        let parts = ranks::figures(2, &["idle".into(), name.into()], Duration::from_secs(60))?;
        for (rank, part) in (0..).zip(parts) {
            let word = IDLE_MAX.verdict(part);
            println!("| {name}, rank {rank} of 2 | {:.2} % | <= 1 % | {word} |", part * 100.0);
            let what = format!("an idle engine, {name}, rank {rank} of 2");
            report.line(Line::single(what, "of a core", part, IDLE_MAX));
            all_hold &= IDLE_MAX.holds(part);
        }
    }
    Ok(all_hold)
}

/// The processor time of a process that has a communicator and does nothing with it, as a part of the time that passes.
fn idle(wire: Wire) -> Result<bool> {
    let join = LocalRanks::joined()?.ok_or("it is a rank of the ranks that this program starts")?;
    let mut store = StoreClient::connect(join, Deadline::after(Duration::from_secs(60)))?;
    let device = Device::soft(SoftOptions { wire, ..SoftOptions::default() });
    let engine = Engine::new(&device.open()?, EngineOptions::default())?;
    let deadline = Deadline::after(Duration::from_secs(30));
    let mut comm = Communicator::new(&engine, &mut store, CommunicatorOptions::default(), deadline)?;
    // As after work.
    comm.all_reduce(&mut [1.0_f32; 1000], ReduceOp::Sum, deadline)?;
    thread::sleep(Duration::from_millis(500));
    let before = processor_time();
    thread::sleep(IDLE_FOR);
    let part = (processor_time() - before).as_secs_f64() / IDLE_FOR.as_secs_f64();
    ranks::say(comm.rank(), part);
    comm.close(Deadline::after(Duration::from_secs(10)))?;
    Ok(true)
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
