//! Bandwidth from one process to another: the software device over TCP beside plain sockets.
//! Each end is a process of its own.

use std::process::ExitCode;

use benches::ratio::{Bound, HEAD, Row};
use benches::report::{Report, SaveArgs};
use benches::soft::Outcome;
use benches::{pair, plain, soft};
use clap::{Parser, Subcommand, ValueEnum};

/// The part of the sockets' bandwidth that the device must reach.
const BOUND: Bound = Bound::AtLeast(0.7);

/// Bandwidth of writes on the software device over TCP, beside a plain sender and receiver.
#[derive(Parser)]
struct Args {
    /// Bytes of a message.
    #[arg(long, value_delimiter = ',', default_values_t = [65_536, 1_048_576])]
    sizes: Vec<usize>,
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
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn compare(args: &Args) -> Outcome<ExitCode> {
    if let Some(kind) = args.only {
        for &size in &args.sizes {
            println!("{size} bytes: {:.3} GB/s", args.measure(size, kind)?);
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
    report.save(&args.save, "point_to_point")?;
    Ok(if hold { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Args {
    fn messages(&self, size: usize) -> u64 {
        (self.mib << 20).div_ceil(size as u64)
    }

    /// GB/s of one run.
    fn measure(&self, size: usize, kind: Kind) -> Outcome<f64> {
        let kind = match kind {
            Kind::Plain => "plain",
            Kind::Soft => "soft",
        };
        let end = |role: &str| {
            let mut arguments = vec![format!("--sizes={size}"), format!("--mib={}", self.mib)];
            arguments.push(format!("--depth={}", self.depth));
            arguments.extend(self.poll.then(|| "--poll".to_owned()));
            arguments.extend(["end", kind, role].map(str::to_owned));
            arguments
        };
        let seconds: f64 = pair::run(&end("sender"), &end("receiver"))?.trim().parse()?;
        Ok((self.messages(size) * size as u64) as f64 / 1e9 / seconds)
    }
}
