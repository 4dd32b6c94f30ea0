//! Prefill and decode as a server embeds them: under tokio, with no thread for KV, and requests that are aborted by
//! dropping their future. `prefill.rs` and `decode.rs` are printed in `docs/guide.md`.

mod blocks;
mod decode;
mod prefill;
mod server;

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use rdma_collective::bootstrap::JobToken;
use rdma_collective::kv::PoolUse;
use rdma_core::Wire;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use decode::Prefill;
use server::{Server, first_token};

/// Prefill and decode as a server embeds them.
#[derive(Debug, Parser)]
struct Args {
    /// Send all bytes over TCP, as between hosts.
    #[arg(long)]
    tcp: bool,
    #[command(subcommand)]
    side: Side,
}

#[derive(Debug, Subcommand)]
enum Side {
    /// Serve decodes until a SIGTERM.
    Prefill,
    /// Run requests against a prefill, and check every byte.
    Decode(Requests),
}

#[derive(Debug, clap::Args)]
struct Requests {
    /// The address that prefill prints.
    #[arg(long)]
    prefill: SocketAddr,
    /// How many requests.
    #[arg(long, default_value_t = 10_000)]
    requests: usize,
    /// Requests under way at once.
    #[arg(long, default_value_t = 16)]
    at_once: usize,
    /// Part of the requests that are aborted, in percent.
    #[arg(long, default_value_t = 20)]
    abort: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args = manual::parse::<Args>();
    let wire = if args.tcp { Wire::Tcp } else { Wire::Auto };
    let token = std::env::var("RDMA_JOB_TOKEN").context("set RDMA_JOB_TOKEN to one token for both")?;
    let token: JobToken = token.parse()?;
    match args.side {
        Side::Prefill => {
            let server = Server::new("prefill-0", PoolUse::Source, wire, &token)?;
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            println!("{}", listener.local_addr()?);
            let mut ended = signal(SignalKind::terminate())?;
            let before = Resources::now()?;
            tokio::select! {
                served = prefill::serve(server.clone(), listener) => served?,
                _ = ended.recv() => {}
            }
            before.check_left(&server).await
        }
        Side::Decode(requests) => {
            let server = Server::new("decode-0", PoolUse::Destination, wire, &token)?;
            run(&server, &requests).await
        }
    }
}

/// Runs the requests, some of which are aborted at some moment, and checks that nothing is left of them.
async fn run(server: &Server, args: &Requests) -> Result<()> {
    let prefill = Prefill::meet(server, args.prefill).await?;
    // A request before all others, so that what lasts is there: the link, and the threads of engine and node.
    decode::request(server, &prefill, "first", 1).await?;
    let (before, begun) = (Resources::now()?, Instant::now());
    let at_once = Arc::new(Semaphore::new(args.at_once));
    let (mut tasks, mut done, mut aborted) = (tokio::task::JoinSet::new(), 0, 0);
    for number in 0..args.requests {
        let turn = Arc::clone(&at_once).acquire_owned().await?;
        let (server, prefill, abort) = (server.clone(), prefill.clone(), args.abort);
        tasks.spawn(async move {
            let _turn = turn;
            one(&server, &prefill, number, abort).await
        });
        while let Some(ended) = tasks.try_join_next() {
            *if ended?? { &mut done } else { &mut aborted } += 1;
        }
    }
    while let Some(ended) = tasks.join_next().await {
        *if ended?? { &mut done } else { &mut aborted } += 1;
    }
    before.check_left(server).await?;
    println!(
        "{done} requests done, {aborted} aborted, in {:.1} s: no wrong byte, nothing left",
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Runs one request; returns whether it was done, and not aborted.
async fn one(server: &Server, prefill: &Prefill, number: usize, abort: usize) -> Result<bool> {
    let id = format!("chatcmpl-{number:08}");
    let request = decode::request(server, prefill, &id, 1 + number % 4);
    let token = if number % 100 < abort {
        // From at once to a time at which most are done.
        let patience = Duration::from_micros((number as u64).wrapping_mul(7919) % 8000);
        match tokio::time::timeout(patience, request).await {
            Ok(token) => token?,
            Err(_) => return Ok(false),
        }
    } else {
        request.await?
    };
    ensure!(token == first_token(&id), "request {id} has the first token of another request");
    Ok(true)
}

/// Resources of this process, which requests must leave as they were.
struct Resources {
    descriptors: usize,
    threads: usize,
}

impl Resources {
    fn now() -> Result<Self> {
        let count =
            |path| fs::read_dir(path).map(Iterator::count).with_context(|| format!("cannot read {path}"));
        Ok(Self { descriptors: count("/proc/self/fd")?, threads: count("/proc/self/task")? })
    }

    /// Fails unless all blocks are free soon, and no descriptor and no thread is left that was not there before.
    async fn check_left(&self, server: &Server) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let held =
                (0..server.pool.layout().blocks()).filter(|block| server.pool.held(*block).is_some()).count();
            let now = Self::now()?;
            if held == 0 && now.descriptors <= self.descriptors && now.threads <= self.threads {
                return Ok(());
            }
            ensure!(
                Instant::now() < until,
                "left behind: {held} blocks, {} descriptors of {}, {} threads of {}",
                now.descriptors,
                self.descriptors,
                now.threads,
                self.threads
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
