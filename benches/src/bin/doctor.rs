//! `rdma-tools doctor` beside `rdma-tools devinfo -v`, on the files of a machine with NICs: no device is needed.
//!
//! `rdma-tools` is built beside this program. Exit status 1 when the row is not within its bound.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use benches::nics::Machine;
use benches::programs;
use benches::ratio::{Bound, HEAD, Row};
use benches::report::{Report, SaveArgs};
use benches::soft::Outcome;
use clap::Parser;

const BOUND: Bound = Bound::AtMost(5.0);
/// The machine that the doctor looks at.
const NICS: u32 = 8;
const GIDS: u32 = 16;
/// Runs of a program that are timed together, because one takes a few milliseconds.
const RUNS: u32 = 20;

/// Times `rdma-tools doctor`.
#[derive(Parser)]
struct Args {
    /// Interleaved pairs.
    #[arg(long, default_value_t = 9)]
    pairs: usize,
    #[command(flatten)]
    save: SaveArgs,
}

fn main() -> ExitCode {
    benches::main("doctor", run)
}

fn run(args: &Args) -> Outcome<bool> {
    let program = programs::beside("rdma-tools")?;
    let machine = Machine::with(NICS, GIDS)?;
    let ours = || look(&program, &["doctor"], machine.root());
    let theirs = || look(&program, &["devinfo", "-v"], machine.root());
    let name = format!("doctor on {NICS} NICs of {GIDS} GIDs, against devinfo -v");
    println!("{HEAD}");
    let mut report = Report::default();
    let holds = report.row(&Row::measure(&name, "ms", BOUND, args.pairs, ours, theirs)?);
    report.save(&args.save, "doctor")?;
    Ok(holds)
}

/// Milliseconds of a run of a subcommand on a machine's files.
fn look(program: &Path, subcommand: &[&str], root: &Path) -> Outcome<f64> {
    let begin = Instant::now();
    for _ in 0..RUNS {
        // A doctor that finds something ends with 1.
        let output = Command::new(program).args(subcommand).arg("--root").arg(root).output()?;
        if output.stdout.is_empty() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{subcommand:?}: {}\n{message}", output.status).into());
        }
    }
    Ok(begin.elapsed().as_secs_f64() * 1e3 / f64::from(RUNS))
}
