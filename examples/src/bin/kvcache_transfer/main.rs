//! Moves the KV cache of requests from prefill to decode, and checks that every block arrived and nothing else
//! changed.
//!
//! Without `--role` it starts both sides as processes of their own, which meet in a store it serves.

mod args;
mod content;
mod decode;
mod explain;
mod pool;
mod prefill;
mod presets;
mod progress;
mod report;
mod requests;
mod side;
mod way;

use anyhow::Context;
use args::{Args, Role};
use clap::Parser;
use examples::processes::{self, Group};
use examples::{debug, memory, output};
use presets::Request;
use rdma_collective::bootstrap::{JobToken, StoreOptions, StoreServer};
use rdma_collective::env::{NcclOptions, Variables};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{ExitCode, Stdio};

/// Most bytes that a side takes besides its pool.
const SIDE_BYTES: u64 = 32 << 20;

fn main() -> ExitCode {
    let args = Args::parse();
    output::end(run(&args), args.timeout())
}

/// Is the side that the flags ask for, or starts both; returns the exit status.
fn run(args: &Args) -> anyhow::Result<u8> {
    if args.explain {
        output::say(explain::explain(args).context("kvcache_transfer")?)?;
        return Ok(0);
    }
    let nccl = NcclOptions::read(&Variables::of_process())?;
    debug::say_what_happens(nccl.debug, None);
    // Both sides have the variables of who started them.
    if std::env::var_os(side::STORE).is_none() {
        debug::say_which_variables_won(nccl.debug, &nccl.report());
    }
    let ok = match args.role {
        None => return start(args).context("kvcache_transfer"),
        Some(Role::Prefill) => {
            fits(args, 1).and_then(|request| prefill::run(args, &request)).context("prefill")
        }
        Some(Role::Decode) => fits(args, 1).and_then(|request| decode::run(args, &request)).context("decode"),
    };
    ok.map(|ok| u8::from(!ok))
}

/// The request, once it is known that the pools of so many sides fit.
fn fits(args: &Args, sides: u64) -> anyhow::Result<Request> {
    let request = args.request()?;
    let need = request.layout.bytes().saturating_add(SIDE_BYTES).saturating_mul(sides);
    let what =
        if sides > 1 { "two pools of twice what is under way" } else { "a pool of twice what is under way" };
    memory::require(&memory::Roots::default(), what, need, "lower --prompt or --concurrency")?;
    Ok(request)
}

/// Starts both sides; returns the exit status.
fn start(args: &Args) -> anyhow::Result<u8> {
    fits(args, 2)?;
    let token = JobToken::random()?;
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = StoreServer::bind(local, StoreOptions::new(token, 2))?;
    let mut group = Group::new("kvcache_transfer");
    for role in [Role::Decode, Role::Prefill] {
        group.start(role.name().to_owned(), |command| {
            command.args(std::env::args_os().skip(1)).args(["--role", role.name()]);
            command.env(side::STORE, server.address().to_string());
            processes::hand_down(command, token);
            if role == Role::Prefill {
                command.stdout(Stdio::null()); // decode tells it all
            }
        })?;
    }
    Ok(group.supervise())
}
