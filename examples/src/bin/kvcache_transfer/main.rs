//! Moves the KV cache of requests from prefill to decode, and checks that every block arrived and nothing else
//! changed.
//!
//! Without `--role` it starts all ranks of both sides as processes of their own, which meet in a store it serves.

mod args;
mod blocks;
mod content;
mod decode;
mod explain;
mod figure;
mod place;
mod plot;
mod pool;
mod prefill;
mod presets;
mod progress;
mod report;
mod requests;
mod side;
mod sides;
mod way;

use anyhow::Context;
use args::Args;
use examples::processes::{self, Group};
use examples::{debug, memory, output};
use plot::Plot;
use presets::Request;
use rdma_collective::bootstrap::{JobToken, StoreOptions, StoreServer};
use rdma_collective::env::{NcclOptions, Variables};
use sides::{Rank, Role};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{ExitCode, Stdio};

/// Most bytes that a rank takes besides its pool, and those of each of its links.
const RANK_BYTES: u64 = 32 << 20;
const LINK_BYTES: u64 = 4 << 20;

fn main() -> ExitCode {
    let args = manual::parse::<Args>();
    output::end(run(&args), args.timeout())
}

/// Is the side that the flags ask for, or starts both; returns the exit status.
fn run(args: &Args) -> anyhow::Result<u8> {
    if args.explain {
        explain(args).context("kvcache_transfer")?;
        return Ok(0);
    }
    let nccl = NcclOptions::read(&Variables::of_process())?;
    debug::say_what_happens(nccl.debug, None);
    // Both sides have the variables of who started them.
    if std::env::var_os(place::STORE).is_none() {
        debug::say_which_variables_won(nccl.debug, &nccl.report());
    }
    let Some(role) = args.role else { return start(args).context("kvcache_transfer") };
    let rank = Rank { role, number: args.rank };
    let others = if role == Role::Prefill { args.ranks(Role::Decode).count() as u32 } else { 0 };
    let run = || {
        args.metrics.serve(others + args.rank)?;
        let request = fits(args, [rank], "a pool of twice what is under way")?;
        match role {
            Role::Prefill => prefill::run(args, &request),
            Role::Decode => decode::run(args, &request),
        }
    };
    run().context(rank.name(args)).map(|ok| u8::from(!ok))
}

/// Draws the plan, if that is asked for, and prints it.
fn explain(args: &Args) -> anyhow::Result<()> {
    let plot = Plot::open(args)?;
    let text = explain::explain(args)?;
    if let Some(plot) = plot {
        plot.write(args)?;
    }
    output::say(text)
}

/// The request as the first of the ranks has it, once it is known that the pools of all of them fit.
fn fits(args: &Args, ranks: impl IntoIterator<Item = Rank>, pools: &str) -> anyhow::Result<Request> {
    let requests = ranks.into_iter().map(|rank| args.request(rank)).collect::<Result<Vec<_>, _>>()?;
    let need = requests.iter().fold(0_u64, |need, request| {
        let links = LINK_BYTES * request.peers.len() as u64;
        need.saturating_add(request.layout.bytes()).saturating_add(RANK_BYTES + links)
    });
    memory::require(&memory::Roots::default(), pools, need, "lower --prompt or --concurrency")?;
    requests.into_iter().next().context("a side without ranks")
}

/// Starts all ranks of both sides; returns the exit status.
fn start(args: &Args) -> anyhow::Result<u8> {
    let ranks: Vec<_> = args.ranks(Role::Decode).chain(args.ranks(Role::Prefill)).collect();
    fits(args, ranks.iter().copied(), "pools of twice what is under way, at all ranks")?;
    let token = JobToken::random()?;
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = StoreServer::bind(local, StoreOptions::new(token, ranks.len() as u32))?;
    let mut group = Group::new("kvcache_transfer");
    for rank in ranks {
        group.start(rank.name(args), |command| {
            let (role, number) = (rank.role.name(), rank.number.to_string());
            command.args(std::env::args_os().skip(1)).args(["--role", role, "--rank", &number]);
            command.env(place::STORE, server.address().to_string());
            processes::hand_down(command, token);
            if rank.role == Role::Prefill {
                command.stdout(Stdio::null()); // decode tells it all
            }
        })?;
    }
    Ok(group.supervise())
}
