//! Writes from one process to another: the software device over TCP beside plain sockets.

use std::process::ExitCode;

use benches::ends::{End, Kind, Load};
use benches::ratio::{Bound, HEAD, Row};
use benches::report::{Report, SaveArgs};
use benches::soft::Outcome;
use clap::Parser;

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
    #[command(flatten)]
    load: Load,
    /// Run one side of the comparison alone, for profilers.
    #[arg(long)]
    only: Option<Kind>,
    #[command(flatten)]
    save: SaveArgs,
    #[command(subcommand)]
    end: Option<End>,
}

fn main() -> ExitCode {
    benches::main("point_to_point", run)
}

fn run(args: &Args) -> Outcome<bool> {
    match &args.end {
        None => compare(args),
        Some(end) => end.run().map(|()| true),
    }
}

fn compare(args: &Args) -> Outcome<bool> {
    if let Some(kind) = args.only {
        for &size in &args.sizes {
            println!("{size} bytes: {:.3} GB/s", args.load.bandwidth(size, kind)?);
        }
        return Ok(true);
    }
    println!("{HEAD}");
    let (mut report, mut hold) = (Report::default(), true);
    for &size in &args.sizes {
        let name = format!("write bandwidth over TCP, {size} bytes");
        let of = |kind| args.load.bandwidth(size, kind);
        let row = Row::measure(&name, "GB/s", BOUND, args.pairs, || of(Kind::Soft), || of(Kind::Plain))?;
        hold &= report.row(&row);
    }
    report.save(&args.save, "point_to_point")?;
    Ok(hold)
}
