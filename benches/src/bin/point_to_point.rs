//! Bandwidth and latency from one process to another: the software device over TCP beside plain sockets.
//! Each end is a process of its own. The latency is that of `write_lat`, which must be built beside this program.

use std::process::ExitCode;

use benches::programs::write_latency;
use benches::ratio::{Bound, HEAD, Row};
use benches::report::{Report, SaveArgs};
use benches::soft::Outcome;
use benches::{pair, plain, soft};
use clap::{Parser, Subcommand, ValueEnum};

/// The part of the sockets' bandwidth that the device must reach.
const BOUND: Bound = Bound::AtLeast(0.9);
/// The device's latency over that of the sockets, whichever of the two ends is faster.
const LATENCY_BOUND: Bound = Bound::AtMost(1.3);

/// Bandwidth and latency of writes on the software device over TCP, beside plain sockets.
#[derive(Parser)]
struct Args {
    /// Bytes of a message.
    #[arg(long, value_delimiter = ',', default_values_t = [65_536, 1_048_576])]
    sizes: Vec<usize>,
    /// Bytes of a message whose latency is measured.
    #[arg(long, value_delimiter = ',', default_values_t = [8])]
    latency: Vec<usize>,
    /// Round trips of a measurement of latency.
    #[arg(long, default_value_t = 20_000)]
    rounds: u32,
    /// Interleaved pairs a row.
    #[arg(long, default_value_t = 7)]
    pairs: usize,
    /// Bytes of each run, in MiB.
    #[arg(long, default_value_t = 2048)]
    mib: u64,
    /// Writes outstanding.
    #[arg(long, default_value_t = 128)]
    depth: u32,
    /// The thread of the process that is written to polls instead of sleeping.
    #[arg(long)]
    poll: bool,
    /// Run one side of the comparison alone, for profilers.
    #[arg(long)]
    only: Option<Kind>,
    #[command(flatten)]
    save: SaveArgs,
    #[command(subcommand)]
    end: Option<End>,
}

/// The task of a child.
#[derive(Subcommand)]
enum End {
    #[command(hide = true)]
    End { kind: Kind, role: Role },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Plain,
    Soft,
    /// A ping-pong of sockets that sleep.
    Blocking,
    /// A ping-pong of sockets that poll.
    Polling,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    Sender,
    Receiver,
}

fn main() -> Outcome<ExitCode> {
    let args = Args::parse();
    match args.end {
        None => compare(&args),
        Some(End::End { kind, role }) => {
            let size = args.sizes[0];
            let messages = args.messages(size);
            let warm_up = messages / 8;
            match (kind, role) {
                (Kind::Plain, Role::Sender) => plain::send(size, messages, warm_up)?,
                (Kind::Plain, Role::Receiver) => plain::receive(size)?,
                (Kind::Soft, Role::Sender) => soft::write(size, messages, warm_up, args.depth)?,
                (Kind::Soft, Role::Receiver) => soft::be_written(size, args.poll)?,
                (kind, Role::Sender) => plain::ping(size, args.rounds, kind == Kind::Polling)?,
                (kind, Role::Receiver) => plain::pong(size, kind == Kind::Polling)?,
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn compare(args: &Args) -> Outcome<ExitCode> {
    if let Some(kind) = args.only {
        for &size in &args.sizes {
            match kind {
                Kind::Plain | Kind::Soft => println!("{size} bytes: {:.3} GB/s", args.measure(size, kind)?),
                _ => println!("{size} bytes: {:.2} us", args.ping_pong(size, kind)?),
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    println!("{HEAD}");
    let (mut report, mut hold) = (Report::default(), true);
    for &size in &args.sizes {
        let name = format!("write bandwidth over TCP, {size} bytes");
        let ours = || args.measure(size, Kind::Soft);
        let row = Row::measure(&name, "GB/s", BOUND, args.pairs, ours, || args.measure(size, Kind::Plain))?;
        hold &= report.row(&row);
    }
    for &size in &args.latency {
        let name = format!("write latency over TCP, {size} bytes");
        let row = Row::measure(
            &name,
            "us",
            LATENCY_BOUND,
            args.pairs,
            || write_latency(&["-d", "soft", "--wire", "tcp"].map(str::to_owned), size, args.rounds),
            || Ok(args.ping_pong(size, Kind::Blocking)?.min(args.ping_pong(size, Kind::Polling)?)),
        )?;
        hold &= report.row(&row);
    }
    report.save(&args.save, "point_to_point")?;
    Ok(if hold { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Args {
    fn messages(&self, size: usize) -> u64 {
        (self.mib << 20).div_ceil(size as u64)
    }

    /// GB/s of one run.
    fn measure(&self, size: usize, kind: Kind) -> Outcome<f64> {
        let seconds = self.seconds(size, kind)?;
        Ok((self.messages(size) * size as u64) as f64 / 1e9 / seconds)
    }

    /// Microseconds of half a round trip.
    fn ping_pong(&self, size: usize, kind: Kind) -> Outcome<f64> {
        Ok(self.seconds(size, kind)? * 1e6)
    }

    /// The time that the sender of a pair says.
    fn seconds(&self, size: usize, kind: Kind) -> Outcome<f64> {
        let kind = kind.to_possible_value().map_or_else(String::new, |kind| kind.get_name().to_owned());
        let end = |role: &str| {
            let mut arguments = vec![format!("--sizes={size}"), format!("--mib={}", self.mib)];
            arguments.extend([format!("--depth={}", self.depth), format!("--rounds={}", self.rounds)]);
            arguments.extend(self.poll.then(|| "--poll".to_owned()));
            arguments.extend(["end", &kind, role].map(str::to_owned));
            arguments
        };
        Ok(pair::run(&end("sender"), &end("receiver"))?.trim().parse()?)
    }
}
