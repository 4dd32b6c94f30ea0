//! Ring all-reduce among processes, measured and checked; it speaks nccl-tests' flags, columns and closing lines.
//!
//! Without a rank in its environment it starts every rank as a process of its own (`launch`), each of which is this
//! program again, with one (`job`).

mod args;
mod check;
mod fault;
mod job;
mod launch;
mod measure;
mod report;
mod seat;

use anyhow::Context;
use args::{Args, Dtype, RANKS_MAX};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use examples::memory;
use examples::sizes::sweep::Sweep;
use half::f16;
use job::Job;
use measure::Bench;
use report::Report;
use seat::Seat;
use std::process::ExitCode;

/// What the library holds besides the caller's buffers, at most, and what a process is.
const RANK_BYTES: u64 = 16 << 20;

fn main() -> ExitCode {
    let args = Args::parse();
    let sweep =
        args.sweep().unwrap_or_else(|error| Args::command().error(ErrorKind::ValueValidation, error).exit());
    let variable = |name: &str| std::env::var(name).ok();
    let outcome = match Seat::find(variable, RANKS_MAX as u32) {
        Ok(None) => start(&args, &sweep),
        Ok(Some(seat)) => run(&seat, &args, &sweep).with_context(|| format!("rank {}", seat.join.rank)),
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("allreduce: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Starts all ranks, once it is known that their buffers fit.
fn start(args: &Args, sweep: &Sweep) -> anyhow::Result<bool> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let ranks = args.ranks(cores);
    let need = sweep.last().saturating_mul(2).saturating_add(RANK_BYTES).saturating_mul(ranks as u64);
    let what = format!("two buffers of {} bytes on each of {ranks} ranks", sweep.last());
    memory::require(&memory::Roots::default(), &what, need, "lower -e or --ranks")?;
    launch::local(ranks)
}

/// Is one rank; true when no element was wrong on any.
fn run(seat: &Seat, args: &Args, sweep: &Sweep) -> anyhow::Result<bool> {
    let mut job = Job::join(seat, args)?;
    let mut report = Report::begin(&job, args, sweep)?;
    let outcome = match args.dtype {
        Dtype::Float => sizes::<f32>(&mut job, args, sweep, &mut report),
        Dtype::Half => sizes::<f16>(&mut job, args, sweep, &mut report),
    };
    let ok = report.end(outcome.as_ref().err().map(|error| format!("{error:#}")))?;
    outcome?;
    job.close()?;
    Ok(ok)
}

fn sizes<T: check::Element + rdma_collective::collective::Element>(
    job: &mut Job,
    args: &Args,
    sweep: &Sweep,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut bench = Bench::<T>::new(job, args, args.dtype.name(), sweep.last())?;
    for bytes in sweep.sizes() {
        report.row(bench.row(bytes)?)?;
    }
    Ok(())
}
