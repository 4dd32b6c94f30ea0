//! Sums by the library's kernels, with each kind of vectors that this processor has, beside plain loops.
//!
//! `cargo run --release -p benches --bin reductions`, some minutes; exit status 1 when a row does not hold. The
//! figures are GB/s of the output, by this thread's processor time, medians of turns that all columns take one after
//! the other.

use std::hint::black_box;
use std::process::ExitCode;

use benches::ratio::{Bound, median};
use benches::report::{Line, Report, SaveArgs};
use benches::soft::Outcome as Result;
use clap::Parser;
use rdma_collective::collective::{Element, ReduceOp, Reduction, Vectors, bf16, f16};
use rdma_core::memory::CacheHint;
use rustix::time::{ClockId, clock_gettime};

/// The least ratio of the widest vectors to the plain loops and to the portable kernel. Where memory bounds the sums,
/// all are alike.
const LEAST: Bound = Bound::AtLeast(0.9);
const SIZES: [usize; 5] = [16 << 10, 256 << 10, 1 << 20, 16 << 20, 64 << 20];
/// The alignment of ranges, which is that of a collective's.
const LINE: usize = 64;
/// Inputs of a sum; with one it is in place.
const INPUTS: [usize; 3] = [1, 2, 4];
const INPUTS_MAX: usize = 4;

/// GB/s of sums, in one run.
#[derive(Parser)]
struct Args {
    /// Turns a row.
    #[arg(long, default_value_t = 9)]
    turns: usize,
    /// Bytes that are stored in one turn, in MiB, or one sum.
    #[arg(long, default_value_t = 32)]
    turn_mib: usize,
    #[command(flatten)]
    save: SaveArgs,
}

fn main() -> ExitCode {
    benches::main("reductions", run)
}

fn run(args: &Args) -> Result<bool> {
    let mut report = Report::default();
    let vectors: Vec<_> = Vectors::all().collect();
    let names: Vec<_> = vectors.iter().map(Vectors::to_string).collect();
    println!("| sum of | inputs | bytes | plain loops | {} | streamed | |", names.join(" | "));
    println!("|---|---|---|---|{}---|---|", "---|".repeat(names.len()));
    let holds = [
        sums::<f32>(args, &vectors, &mut report, |left, right| left + right),
        sums::<f16>(args, &vectors, &mut report, |left, right| left + right),
        sums::<bf16>(args, &vectors, &mut report, |left, right| left + right),
        sums::<i32>(args, &vectors, &mut report, i32::wrapping_add),
    ];
    report.save(&args.save, "reductions")?;
    Ok(holds.iter().all(|holds| *holds))
}

/// All rows of a type.
fn sums<T: Element>(
    args: &Args,
    vectors: &[Vectors],
    report: &mut Report,
    add: impl Fn(T, T) -> T + Copy,
) -> bool {
    let most = SIZES[SIZES.len() - 1] + LINE;
    let (inputs, mut out) = (vec![vec![0; most]; INPUTS_MAX], vec![0; most]);
    let inputs: Vec<&[u8]> = inputs.iter().map(|input| &input[input.as_ptr().align_offset(LINE)..]).collect();
    let begin = out.as_ptr().align_offset(LINE);
    let mut all_hold = true;
    for count in INPUTS {
        for bytes in SIZES {
            let inputs: Vec<_> = inputs[..count].iter().map(|input| T::from_bytes(&input[..bytes])).collect();
            let out = T::from_bytes_mut(&mut out[begin..][..bytes]);
            let row = Sum { inputs: &inputs, out }.row(args, vectors, add);
            let of = T::DATA_TYPE;
            let figures: Vec<_> = row.iter().map(|figure| format!("{figure:.1}")).collect();
            let widest = row[vectors.len()];
            let best = row[..vectors.len()].iter().copied().fold(0.0, f64::max);
            let ratio = widest / best;
            report.line(Line {
                what: format!(
                    "sum of {of}, {count} inputs, {} KiB: widest vectors against the best other",
                    bytes >> 10
                ),
                theirs: Some(best),
                ratio: Some(ratio),
                ..Line::single(String::new(), "GB/s", widest, LEAST)
            });
            let word = LEAST.verdict(ratio);
            println!("| {of} | {count} | {} KiB | {} | {word} |", bytes >> 10, figures.join(" | "));
            all_hold &= LEAST.holds(ratio);
        }
    }
    all_hold
}

/// The operands of a row.
struct Sum<'a, T> {
    inputs: &'a [&'a [T]],
    out: &'a mut [T],
}

impl<T: Element> Sum<'_, T> {
    /// GB/s of the plain loops, of each kind of vectors, and of the last of them around the caches.
    fn row(mut self, args: &Args, vectors: &[Vectors], add: impl Fn(T, T) -> T + Copy) -> Vec<f64> {
        let rounds = ((args.turn_mib << 20) / size_of_val(self.out)).max(1);
        let kernels = vectors.iter().map(|&vectors| (vectors, CacheHint::Cached));
        let streamed = vectors.last().map(|&widest| (widest, CacheHint::Streamed));
        let kernels: Vec<_> = kernels.chain(streamed).collect();
        let mut figures = vec![Vec::new(); 1 + kernels.len()];
        for _ in 0..args.turns {
            figures[0].push(self.timed(rounds, |sum| sum.plain(add)));
            for (&(vectors, hint), figures) in kernels.iter().zip(&mut figures[1..]) {
                let reduction =
                    Reduction::new(T::DATA_TYPE, ReduceOp::Sum).with(vectors).with_cache_hint(hint);
                figures.push(self.timed(rounds, |sum| sum.by(reduction)));
            }
        }
        figures.into_iter().map(median).collect()
    }

    /// GB/s of sums, after one to warm up.
    fn timed(&mut self, rounds: usize, mut sum: impl FnMut(&mut Self)) -> f64 {
        sum(self);
        let begin = clock_gettime(ClockId::ThreadCPUTime);
        for _ in 0..rounds {
            sum(black_box(self));
        }
        let took = clock_gettime(ClockId::ThreadCPUTime) - begin;
        (rounds * size_of_val(self.out)) as f64 / (took.tv_sec as f64 * 1e9 + took.tv_nsec as f64)
    }

    /// Passes over the output once for each operand but the first.
    fn plain(&mut self, add: impl Fn(T, T) -> T) {
        let rest = match self.inputs {
            [left, right, rest @ ..] => {
                for (out, (left, right)) in self.out.iter_mut().zip(left.iter().zip(*right)) {
                    *out = add(*left, *right);
                }
                rest
            }
            source => source,
        };
        for source in rest {
            for (out, source) in self.out.iter_mut().zip(*source) {
                *out = add(*out, *source);
            }
        }
    }

    fn by(&mut self, reduction: Reduction) {
        let mut inputs = [&[][..]; INPUTS_MAX];
        for (bytes, input) in inputs.iter_mut().zip(self.inputs) {
            *bytes = T::as_bytes(input);
        }
        let out = T::as_bytes_mut(self.out);
        let done = match &inputs[..self.inputs.len()] {
            one @ [_] => reduction.reduce_into(out, one),
            several => reduction.reduce(out, several),
        };
        done.expect("all have one length");
    }
}
