//! A world of ranks in threads of this process, each with a device and an engine of its own.

#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;
use std::thread;

use rdma_collective::bootstrap::{JobToken, Join, StoreClient, StoreOptions, StoreServer};
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_core::{Context, Device, SoftOptions, Wire};

use crate::common::long;

fn device(name: &str, wire: Wire) -> Context {
    Device::soft(SoftOptions { name: name.to_owned(), wire, ..SoftOptions::default() }).open().unwrap()
}

/// The store, the engine and the rank that a test gets before it makes its communicator.
pub struct Rank {
    pub rank: u32,
    pub engine: Engine,
    pub store: StoreClient,
}

impl Rank {
    pub fn communicator(&mut self, options: CommunicatorOptions) -> Communicator {
        Communicator::new(&self.engine, &mut self.store, options, long()).unwrap()
    }
}

/// Runs `body` on each of `ranks` threads, and gives what they return, by rank. A panic of one is the caller's.
pub fn each_rank<T: Send + 'static>(
    ranks: u32,
    wire: Wire,
    body: impl Fn(Rank) -> T + Send + Sync + 'static,
) -> Vec<T> {
    each_rank_on(ranks, EngineOptions::default(), move |rank| device(&format!("soft{rank}"), wire), body)
}

/// As `each_rank`, with a device of its own for each rank.
pub fn each_rank_on<T: Send + 'static>(
    ranks: u32,
    options: EngineOptions,
    device: impl Fn(u32) -> Context + Send + Sync + 'static,
    body: impl Fn(Rank) -> T + Send + Sync + 'static,
) -> Vec<T> {
    each_rank_with(ranks, move |_| options.clone(), device, body)
}

/// As `each_rank`, with options of its own for each rank.
pub fn each_rank_with<T: Send + 'static>(
    ranks: u32,
    options: impl Fn(u32) -> EngineOptions + Send + Sync + 'static,
    device: impl Fn(u32) -> Context + Send + Sync + 'static,
    body: impl Fn(Rank) -> T + Send + Sync + 'static,
) -> Vec<T> {
    each_rank_over(ranks, move |rank| vec![(device(rank), options(rank))], body)
}

/// As `each_rank`, over devices of its own for each rank.
pub fn each_rank_over<T: Send + 'static>(
    ranks: u32,
    devices: impl Fn(u32) -> Vec<(Context, EngineOptions)> + Send + Sync + 'static,
    body: impl Fn(Rank) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let token = JobToken::random().unwrap();
    let server = StoreServer::bind("127.0.0.1:0".parse().unwrap(), StoreOptions::new(token, ranks)).unwrap();
    let (address, shared) = (server.address(), Arc::new((devices, body)));
    let threads = (0..ranks).map(|rank| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let (devices, body) = &*shared;
            let engine = Engine::over(&devices(rank)).unwrap();
            let join = Join { address, token, rank, world: ranks };
            body(Rank { rank, engine, store: StoreClient::connect(join, long()).unwrap() })
        })
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// As `each_rank`, with a communicator of `options`.
pub fn each_communicator<T: Send + 'static>(
    ranks: u32,
    wire: Wire,
    options: CommunicatorOptions,
    body: impl Fn(Communicator) -> T + Send + Sync + 'static,
) -> Vec<T> {
    each_rank(ranks, wire, move |mut rank| body(rank.communicator(options.clone())))
}
