//! The libraries with the feature `metrics` beside themselves without it, as `cargo xtask metrics-cost` measures them:
//! instructions and speed of an all-reduce of 8 B and of a write of 4 KiB.
//!
//! `cargo run --release -p benches --bin metrics`. Exit status 1 when a row is not within its bound.

use std::process::{Command, ExitCode, Stdio};

use benches::ratio::Bound;
use benches::report::{Line, Report, SaveArgs};
use benches::soft::Outcome;
use clap::Parser;

/// Instructions with metrics over those without.
const INSTRUCTIONS: Bound = Bound::AtMost(1.02);
/// Speed with metrics over that without.
const SPEED: Bound = Bound::AtLeast(0.95);

/// Has the cost of metrics measured, and keeps its rows.
#[derive(Parser)]
struct Args {
    /// Pairs of timed runs.
    #[arg(long, default_value_t = 9)]
    pairs: usize,
    #[command(flatten)]
    save: SaveArgs,
}

fn main() -> ExitCode {
    benches::main("metrics", run)
}

fn run(args: &Args) -> Outcome<bool> {
    let mut command = Command::new("cargo");
    command.args(["xtask", "metrics-cost", "--pairs", &args.pairs.to_string()]);
    // A cost beyond its bound fails the command, and is a row all the same.
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).stderr(Stdio::inherit()).output()?;
    let printed = String::from_utf8(output.stdout)?;
    let (mut report, mut all_hold) = (Report::default(), true);
    for line in printed.lines().skip(1) {
        let measured = Measured::read(line).ok_or_else(|| format!("`{line}` is no row"))?;
        all_hold &= measured.keep(&mut report, args.pairs);
    }
    if report.rows().is_empty() {
        return Err(format!("{command:?} measured nothing").into());
    }
    report.save(&args.save, "metrics")?;
    Ok(all_hold)
}

/// Figures of a call, as `metrics-cost` prints them.
struct Measured {
    /// The call and its bytes.
    call: String,
    /// Instructions with metrics and without.
    instructions: [f64; 2],
    /// Speed with metrics, as a part of that without.
    speed: f64,
}

impl Measured {
    /// Reads a line: call, bytes, instructions without metrics and with, their ratio, speed.
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let call = format!("{} of {} B", words.next()?, words.next()?);
        let mut figure = || words.next()?.parse::<f64>().ok();
        let (off, on, _ratio, speed) = (figure()?, figure()?, figure()?, figure()?);
        Some(Self { call, instructions: [on, off], speed })
    }

    /// Keeps its two rows; returns whether both hold.
    fn keep(self, report: &mut Report, pairs: usize) -> bool {
        let [on, off] = self.instructions;
        let what = format!("{}, metrics on beside off: ", self.call);
        let counted = Line {
            what: what.clone() + "instructions",
            ours: Some(on),
            theirs: Some(off),
            ratio: Some(on / off),
            bound: INSTRUCTIONS.to_string(),
            ..Line::default()
        };
        let timed = Line {
            what: what + "speed",
            ratio: Some(self.speed),
            pairs,
            bound: SPEED.to_string(),
            ..Line::default()
        };
        println!(
            "{}: instructions {:.4} ({INSTRUCTIONS}), speed {:.3} ({SPEED})",
            self.call,
            on / off,
            self.speed
        );
        report.line(counted);
        report.line(timed);
        INSTRUCTIONS.holds(on / off) && SPEED.holds(self.speed)
    }
}
