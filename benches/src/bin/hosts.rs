//! Collectives over TCP on the loopback interface and between hosts, and writes, beside the libraries and plain sockets
//! that people would use instead.
//!
//! `cargo run --release -p benches --bin hosts`, with `write_lat` built beside it. Hosts are namespaces of this
//! machine, which root may make. The variable `PEERS` names the folder of the peers, as for the bench `collectives`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use benches::collectives::rank::Job;
use benches::collectives::{Network, Pairs, Setup, Spread, Table, picture};
use benches::ends::{End, Kind, Load, Wait, turn};
use benches::footprint;
use benches::peers::{perftest_figure, serve_and_run};
use benches::programs::beside;
use benches::rails::Rails;
use benches::ranks;
use benches::ratio::{Bound, HEAD, Row};
use benches::report::{Line, Report, SaveArgs, Saved};
use benches::soft::Outcome as Result;
use clap::{Parser, Subcommand, ValueEnum};
use rdma_collective::bootstrap::{LocalRanks, StoreClient};
use rdma_core::{Deadline, Device, SoftOptions, Wire};

/// Sizes of an all-reduce: 8 B, and each power of four up to 64 MiB.
const SIZES: [usize; 13] =
    [8, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];
/// Ranks on the loopback interface.
const RANKS: [u32; 3] = [2, 4, 8];
/// Sizes of an all-reduce between hosts.
const SPREAD_SIZES: [usize; 3] = [8, 64 << 10, 16 << 20];
/// Ranks whose links and memory are counted, and the bytes of their all-reduce.
const MANY: u32 = 64;
const MANY_BYTES: u64 = 1 << 20;
const MANY_MIB: Bound = Bound::AtMost(16.0);
/// The longest that so many ranks may take.
const LIMIT: Duration = Duration::from_secs(300);
const RAILS: Bound = Bound::AtLeast(1.8);
const LATENCY: Bound = Bound::AtMost(1.3);
const BANDWIDTH: Bound = Bound::AtLeast(0.9);
/// Where the server of `write_lat` listens, and the column of its typical latency.
const PORT: u16 = 18615;
const TYPICAL: usize = 4;

/// Ratios over TCP and between hosts in one run.
#[derive(Parser)]
struct Args {
    /// Only these rows [default: all].
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Rows>,
    /// Takes one pair of a few sizes, each timed briefly: this shows whether everything runs, not how fast
    #[arg(long)]
    quick: bool,
    /// Interleaved pairs a row; fewer in a table that does not end in time, but one.
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    /// How long a table of collectives may take, about.
    #[arg(long, default_value_t = 6)]
    minutes: u32,
    /// How long a size is timed, by each side.
    #[arg(long, default_value_t = 100)]
    milliseconds: u32,
    /// Draws the times of the all-reduces over TCP to FILE: of this run, or of the one that --from names.
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

/// Rows that belong together.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rows {
    /// All-reduce over TCP on the loopback interface.
    AllReduce,
    /// The other collectives there.
    Others,
    /// All-reduce between hosts of several ranks.
    Hosts,
    /// All-reduce between hosts over two cables beside one.
    Rails,
    /// A write of 8 B beside plain sockets.
    Latency,
    /// Writes beside a plain sender.
    Bandwidth,
    /// Links and memory of one of many ranks.
    Footprint,
}

/// The task of a process that this program starts.
#[derive(Subcommand)]
enum Process {
    #[command(hide = true)]
    Job(Job),
    #[command(flatten)]
    End(End),
    /// A rank of many, which says its links or its memory in MiB.
    #[command(hide = true)]
    Footprint { figure: Figure },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Figure {
    Links,
    Memory,
}

fn main() -> ExitCode {
    benches::main("hosts", run)
}

fn run(args: &Args) -> Result<bool> {
    match (&args.process, &args.from, &args.plot) {
        (None, Some(from), Some(plot)) => draw(from, plot).map(|()| true),
        (None, ..) => compare(args),
        (Some(Process::Job(job)), ..) => job.run().map(|()| true),
        (Some(Process::End(end)), ..) => end.run().map(|()| true),
        (Some(Process::Footprint { figure }), ..) => one_of_many(*figure).map(|()| true),
    }
}

fn compare(args: &Args) -> Result<bool> {
    let mut run = Run { args, report: Report::default(), all_hold: true };
    for rows in Rows::value_variants().iter().filter(|rows| args.only.is_empty() || args.only.contains(rows))
    {
        match rows {
            Rows::AllReduce => {
                for ranks in RANKS {
                    run.tables(Network::Loopback, ranks, &[Table::AllReduce], &SIZES)?;
                }
            }
            Rows::Others => {
                let tables = [Table::Broadcast, Table::AllGather, Table::ReduceScatter, Table::AllToAll];
                run.tables(Network::Loopback, 4, &tables, &SIZES)?;
            }
            Rows::Hosts => {
                let spread = Network::Spread(Spread::new()?);
                run.tables(spread, Spread::RANKS, &[Table::AllReduce], &SPREAD_SIZES)?;
            }
            Rows::Rails => run.rails()?,
            Rows::Latency => run.latency()?,
            Rows::Bandwidth => run.bandwidth()?,
            Rows::Footprint => run.footprint()?,
        }
    }
    if let Some(plot) = &args.plot {
        std::fs::write(plot, picture::draw_times(run.report.rows()).to_string())?;
    }
    run.report.save(&args.save, "hosts")?;
    Ok(run.all_hold)
}

/// Draws what an earlier run saved.
fn draw(saved: &Path, plot: &Path) -> Result<()> {
    Ok(std::fs::write(plot, picture::draw_times(&Saved::read(saved)?.rows).to_string())?)
}

/// Rows as they are measured.
struct Run<'a> {
    args: &'a Args,
    report: Report,
    all_hold: bool,
}

impl Run<'_> {
    /// Measures collectives beside the peers that are there, and says which are not.
    fn tables(&mut self, network: Network, ranks: u32, tables: &[Table], sizes: &[usize]) -> Result<()> {
        let Args { quick, pairs, minutes, milliseconds, .. } = *self.args;
        let (pairs, milliseconds) = if quick { (1, 20) } else { (pairs, milliseconds) };
        let setup = Setup::new(network, ranks, milliseconds, false)?;
        for table in tables {
            let sides = table.sides(&setup.network);
            for side in sides.iter().filter(|side| !setup.has(**side)) {
                println!("{} is not installed: see benches/README.md", side.name());
            }
            let quickly = |bytes: &usize| !quick || matches!(*bytes, 8 | 64 | 0x1_0000 | 0x10_0000);
            let sizes = table.shared(sizes.iter().copied().filter(quickly).collect(), ranks);
            let within = Duration::from_secs(60) * minutes;
            let pairs = Pairs::measure(&setup, *table, &sizes, (pairs, within))?;
            self.all_hold &= table.print(&setup, &pairs, &mut self.report);
        }
        Ok(())
    }

    fn row(
        &mut self,
        name: &str,
        (unit, bound): (&'static str, Bound),
        ours: impl FnMut() -> Result<f64>,
        theirs: impl FnMut() -> Result<f64>,
    ) -> Result<()> {
        let pairs = if self.args.quick { 1 } else { self.args.pairs };
        let row = Row::measure(name, unit, bound, pairs, ours, theirs)?;
        self.all_hold &= self.report.row(&row);
        Ok(())
    }

    fn rails(&mut self) -> Result<()> {
        println!("\n{HEAD}");
        let rails = Rails::new()?;
        let name = "all-reduce of 16 MiB between two hosts, two cables of 1 Gb/s against one";
        self.row(name, ("GB/s", RAILS), || rails.bandwidth(2), || rails.bandwidth(1))
    }

    fn latency(&mut self) -> Result<()> {
        println!("\n{HEAD}");
        let ours = || write_lat(8);
        let best = || Ok(turn(8, Wait::Blocking)?.min(turn(8, Wait::Polling)?));
        self.row("write latency over TCP, 8 B, against the better plain socket", ("us", LATENCY), ours, best)
    }

    fn bandwidth(&mut self) -> Result<()> {
        println!("\n{HEAD}");
        let load = Load { mib: if self.args.quick { 64 } else { 2048 }, ..Load::default() };
        for (size, name) in [(64 << 10, "64 KiB"), (1 << 20, "1 MiB")] {
            let name = format!("write bandwidth over TCP, {name}, against a plain sender");
            let [ours, theirs] = [Kind::Soft, Kind::Plain].map(|kind| {
                let load = load.clone();
                move || load.bandwidth(size, kind)
            });
            self.row(&name, ("GB/s", BANDWIDTH), ours, theirs)?;
        }
        Ok(())
    }

    /// The most that any of many ranks has.
    fn footprint(&mut self) -> Result<()> {
        let ranks = if self.args.quick { MANY / 4 } else { MANY };
        println!(
            "\n| a rank of {ranks}, all-reduce of {MANY_BYTES} B alone | the most | bound | |\n|---|---|---|---|"
        );
        // A tree has a link for each power of two, and a ring has two.
        let links = Bound::AtMost(f64::from(2 * ranks.ilog2() + 2));
        let figures = [(Figure::Links, "links", links), (Figure::Memory, "MiB", MANY_MIB)];
        for (figure, unit, bound) in figures {
            let name = if figure == Figure::Memory { "memory" } else { "links" };
            let all = ranks::figures(ranks, &["footprint".into(), name.into()], LIMIT)?;
            let most = all.into_iter().fold(0.0, f64::max);
            println!("| {name} | {most:.2} {unit} | {bound} | {} |", bound.verdict(most));
            let what = format!("{name} of a rank of {ranks}, all-reduce of {MANY_BYTES} B alone");
            self.report.line(Line::single(what, unit, most, bound));
            self.all_hold &= bound.holds(most);
        }
        Ok(())
    }
}

/// Microseconds of one way, as `write_lat` gives them.
fn write_lat(size: u64) -> Result<f64> {
    let program = beside("write_lat")?;
    let side = || {
        let mut command = Command::new(&program);
        command.args(["--ib-dev", "soft0", "--wire", "tcp", "-F", "-n", "20000"]);
        command.args(["-s", &size.to_string(), "-p", &PORT.to_string()]);
        command
    };
    let mut client = side();
    client.arg("127.0.0.1");
    perftest_figure(&serve_and_run(side(), client, PORT)?, size, TYPICAL)
}

fn one_of_many(figure: Figure) -> Result<()> {
    let before = footprint::resident()?;
    let join = LocalRanks::joined()?.ok_or("it is one of the ranks that this program starts")?;
    let deadline = Deadline::after(LIMIT);
    let mut store = StoreClient::connect(join, deadline)?;
    let device = Device::soft(SoftOptions { wire: Wire::Tcp, ..SoftOptions::default() });
    let found = footprint::rank(&device, MANY_BYTES, before, &mut store, deadline)?;
    let figure = match figure {
        // Each end of a link has a connection for its requests.
        Figure::Links => found.connections as f64 / 2.0,
        Figure::Memory => found.beyond_buffer as f64 / f64::from(1 << 20),
    };
    ranks::say(store.rank(), figure);
    Ok(())
}
