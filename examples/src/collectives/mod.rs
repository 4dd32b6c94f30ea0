//! Collectives among processes, measured and checked; they speak nccl-tests' flags, columns and closing lines. A
//! collective's program is one line: it calls [`main`] with its [`Collective`].
//!
//! Without a rank in its environment a program starts every rank as a process of its own, each of which is the program
//! again, with one (`job`).

mod args;
mod buffer;
mod call;
mod check;
mod job;
mod kind;
mod lanes;
mod launch;
mod measure;
mod plot;
mod report;
mod table;
pub mod tune;

pub use kind::Collective;

use crate::processes::Group;
use crate::sizes::sweep::Sweep;
use crate::{debug, memory, output, processes};
use anyhow::Context;
use args::Args;
use clap::error::ErrorKind;
use job::Job;
use lanes::Plan;
use rdma_collective::bootstrap::{JobToken, StoreOptions, StoreServer};
use rdma_collective::env::{Environment, Launch, Launcher, NcclOptions};
use report::Report;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

/// Most bytes that the library holds besides the caller's buffers, with the bytes of the process itself.
const RANK_BYTES: u64 = 16 << 20;

/// Runs one rank of a collective's program, or starts all of them.
pub fn main(collective: Collective) -> ExitCode {
    let args = Args::read(collective);
    let sweep = args
        .sweep()
        .unwrap_or_else(|error| Args::command_of(collective).error(ErrorKind::ValueValidation, error).exit());
    if let Err(error) = lanes::check(&args) {
        Args::command_of(collective).error(ErrorKind::ValueValidation, error).exit();
    }
    output::end(place(&args, &sweep).context(collective.name()), args.timeout())
}

/// Is the rank that the environment tells of, or starts all ranks; returns the exit status.
fn place(args: &Args, sweep: &Sweep) -> anyhow::Result<u8> {
    let environment = Environment::of_process()?;
    let nccl = environment.nccl.clone();
    debug::say_what_happens(nccl.debug, environment.launch.as_ref().map(|launch| launch.rank));
    debug::say_which_variables_won(nccl.debug, &environment.report());
    let plan = Plan::of(args, &nccl);
    match launch::rank(environment, args)? {
        None => start(args, sweep),
        Some(launch) => {
            args.metrics.serve(launch.local_rank.unwrap_or(0))?;
            let ok = run((&launch, &nccl), args, sweep, &plan);
            ok.map(|ok| u8::from(!ok)).with_context(|| format!("rank {}", launch.rank))
        }
    }
}

/// Starts all ranks, once it is known that their buffers fit.
fn start(args: &Args, sweep: &Sweep) -> anyhow::Result<u8> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let ranks = args.ranks(cores);
    args.check_root(u32::try_from(ranks)?)?;
    fits(args, sweep, ranks)?;
    start_ranks(args.collective.name(), ranks)
}

/// Starts so many ranks, each this program again; returns the exit status.
fn start_ranks(name: &'static str, ranks: usize) -> anyhow::Result<u8> {
    let token = JobToken::random()?;
    let options = StoreOptions::new(token, u32::try_from(ranks)?);
    let server = StoreServer::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), options)?;
    let mut group = Group::new(name);
    for rank in 0..ranks {
        group.start(format!("rank {rank}"), |command| {
            command.args(std::env::args_os().skip(1));
            command.envs(launch::variables(rank, ranks, server.address()));
            processes::hand_down(command, token);
        })?;
    }
    Ok(group.supervise())
}

/// Checks that the buffers of so many ranks fit this machine.
fn fits(args: &Args, sweep: &Sweep, ranks: usize) -> anyhow::Result<()> {
    let buffers = 2 * args.agg_iters;
    let what = format!("{buffers} buffers of {} bytes on each of {ranks} ranks", sweep.last());
    memory_for(&what, args.buffer_bytes(sweep.last()), ranks, "lower -e, -m or --ranks")
}

/// Checks that buffers of so many bytes a rank fit this machine.
fn memory_for(what: &str, each: u64, ranks: usize, mend: &'static str) -> anyhow::Result<()> {
    let need = each.saturating_add(RANK_BYTES).saturating_mul(ranks as u64);
    Ok(memory::require(&memory::Roots::default(), what, need, mend)?)
}

/// Is one rank; true when no element was wrong on any.
fn run(
    (launch, nccl): (&Launch, &NcclOptions),
    args: &Args,
    sweep: &Sweep,
    plan: &Plan,
) -> anyhow::Result<bool> {
    args.check_root(launch.world)?;
    if launch.launcher != Launcher::LocalRanks {
        fits(args, sweep, launch.local_world.unwrap_or(1) as usize)?; // ours has looked for all ranks together
    }
    let mut job = Job::join(launch, nccl, args, plan)?;
    let mut report = Report::begin(&job, args, sweep, plan)?;
    let outcome = table::run(&mut job, args, sweep, &mut report).and_then(|()| report.lost(&job));
    // The job is over before the files are written, so that a full disk here is no loss to the other ranks.
    let outcome = outcome.and_then(|()| job.close());
    let ok = report.end(outcome.as_ref().err().map(output::in_a_line))?;
    outcome.map(|()| ok)
}
