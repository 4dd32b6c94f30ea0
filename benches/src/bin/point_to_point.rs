//! Bandwidth from one process to another: the software device over TCP against plain sockets.
//!
//! Every pair runs plain sockets first and the device right after; what counts is the median
//! of the ratios. Each end is a process of its own.

use benches::ratio::median;
use benches::soft::Outcome;
use benches::{pair, plain, soft};
use clap::{Parser, Subcommand, ValueEnum};

#[derive(Parser)]
#[command(about = "Bandwidth of RDMA writes on the software device over TCP, against a plain sender and receiver")]
struct Args {
    /// Bytes of a message
    #[arg(long, value_delimiter = ',', default_values_t = [65_536, 1_048_576])]
    sizes: Vec<usize>,
    /// Pairs of runs
    #[arg(long, default_value_t = 7)]
    pairs: usize,
    /// Bytes of each run, in MiB
    #[arg(long, default_value_t = 2048)]
    mib: u64,
    /// Writes outstanding
    #[arg(long, default_value_t = 128)]
    depth: u32,
    /// The thread of the process that is written to polls instead of sleeping
    #[arg(long)]
    poll: bool,
    /// Run one side of the comparison alone, for profilers
    #[arg(long)]
    only: Option<Kind>,
    #[command(subcommand)]
    end: Option<End>,
}

/// What a child does.
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

fn main() -> Outcome<()> {
    let args = Args::parse();
    match args.end {
        None => compare(&args),
        Some(End::End { kind, role }) => {
            let size = args.sizes[0];
            let messages = (args.mib << 20).div_ceil(size as u64);
            let warm_up = messages / 8;
            match (kind, role) {
                (Kind::Plain, Role::Sender) => Ok(plain::send(size, messages, warm_up)?),
                (Kind::Plain, Role::Receiver) => Ok(plain::receive(size)?),
                (Kind::Soft, Role::Sender) => soft::write(size, messages, warm_up, args.depth),
                (Kind::Soft, Role::Receiver) => soft::be_written(size, args.poll),
            }
        }
    }
}

fn compare(args: &Args) -> Outcome<()> {
    println!("# writes over TCP between two processes, {} outstanding, against plain sockets; GB/s", args.depth);
    println!("{:>10} {:>5} {:>10} {:>10} {:>8}", "size", "pair", "plain", "soft", "ratio");
    for &size in &args.sizes {
        let mut ratios = Vec::new();
        for number in 1..=args.pairs {
            let run = |kind, name| match args.only {
                Some(only) if only != kind => Ok(f64::NAN),
                _ => measure(args, size, name),
            };
            let (plain, soft) = (run(Kind::Plain, "plain")?, run(Kind::Soft, "soft")?);
            ratios.push(soft / plain);
            println!("{size:>10} {number:>5} {plain:>10.3} {soft:>10.3} {:>8.3}", soft / plain);
        }
        println!("{size:>10} median {:>29.3}", median(&ratios));
    }
    Ok(())
}

/// One run; GB/s.
fn measure(args: &Args, size: usize, kind: &str) -> Outcome<f64> {
    let end = |role: &str| {
        let mut arguments = vec![format!("--sizes={size}"), format!("--mib={}", args.mib)];
        arguments.push(format!("--depth={}", args.depth));
        arguments.extend(args.poll.then(|| "--poll".to_owned()));
        arguments.extend(["end", kind, role].map(str::to_owned));
        arguments
    };
    let seconds: f64 = pair::run(&end("sender"), &end("receiver"))?.trim().parse()?;
    let messages = (args.mib << 20).div_ceil(size as u64);
    Ok((messages * size as u64) as f64 / 1e9 / seconds)
}
