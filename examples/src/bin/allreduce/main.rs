//! Ring all-reduce among processes, measured and checked; it speaks nccl-tests' flags, columns and closing lines.
//!
//! Without a rank in its environment it starts every rank as a process of its own, each of which is this program
//! again, with one (`job`).

mod args;
mod check;
mod job;
mod measure;
mod report;
mod seat;

use anyhow::Context;
use args::{Args, Dtype, RANKS_MAX};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use examples::processes::Group;
use examples::sizes::sweep::Sweep;
use examples::{memory, output, processes};
use half::f16;
use job::Job;
use measure::Bench;
use rdma_collective::comm::bootstrap::{JobToken, StoreOptions, StoreServer};
use report::Report;
use seat::Seat;
use std::net::{Ipv4Addr, SocketAddr};
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
            output::complain(format_args!("allreduce: {}", output::in_a_line(&error)));
            ExitCode::FAILURE
        }
    }
}

/// Starts all ranks, once it is known that their buffers fit.
fn start(args: &Args, sweep: &Sweep) -> anyhow::Result<bool> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let ranks = args.ranks(cores);
    fits(sweep, ranks)?;
    let token = JobToken::random()?;
    let options = StoreOptions::new(token, u32::try_from(ranks)?);
    let server = StoreServer::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), options)?;
    let mut group = Group::new("allreduce");
    for rank in 0..ranks {
        group.start(format!("rank {rank}"), |command| {
            command.args(std::env::args_os().skip(1));
            command.envs(seat::variables(rank, ranks, server.address()));
            processes::hand_down(command, token);
        })?;
    }
    Ok(group.supervise())
}

/// That the buffers of so many ranks fit this machine.
fn fits(sweep: &Sweep, ranks: usize) -> anyhow::Result<()> {
    let need = sweep.last().saturating_mul(2).saturating_add(RANK_BYTES).saturating_mul(ranks as u64);
    let what = format!("two buffers of {} bytes on each of {ranks} ranks", sweep.last());
    Ok(memory::require(&memory::Roots::default(), &what, need, "lower -e or --ranks")?)
}

/// Is one rank; true when no element was wrong on any.
fn run(seat: &Seat, args: &Args, sweep: &Sweep) -> anyhow::Result<bool> {
    if seat.launcher.is_none() {
        fits(sweep, 1)?; // a launcher of ours has looked for all ranks together
    }
    let mut job = Job::join(seat, args)?;
    let mut report = Report::begin(&job, args, sweep)?;
    let outcome = match args.dtype {
        Dtype::Float => sizes::<f32>(&mut job, args, sweep, &mut report),
        Dtype::Half => sizes::<f16>(&mut job, args, sweep, &mut report),
    };
    let ok = report.end(outcome.as_ref().err().map(output::in_a_line))?;
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
