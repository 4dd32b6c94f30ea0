//! Calls on the store and on ranks that the parent started.

use std::net::SocketAddr;
use std::time::Duration;

use rdma_collective::bootstrap::{JobToken, Join, LocalRanks, StoreClient, StoreOptions, StoreServer};
use rdma_collective::collective::{Communicator, InitOptions};
use rdma_collective::env;
use rdma_core::Deadline;

use super::{Call, Outcome, done, harmless, refused, told};
use crate::fixture::{Fixture, soon};

/// A store that does not exist.
fn nowhere() -> Join {
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    Join { address, token: JobToken::from_bytes([1; 16]), rank: 0, world: 1 }
}

/// A deadline for calls that meet nobody.
fn at_once() -> Deadline {
    Deadline::after(Duration::from_millis(20))
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn alone() -> StoreOptions {
    StoreOptions::new(JobToken::from_bytes([1; 16]), 1)
}

/// Makes a job of one rank where its device would be the parent's.
fn alone_with(f: &Fixture, init: impl FnOnce() -> Outcome) -> Outcome {
    if f.engine.context().is_soft() { init() } else { Outcome::Absent }
}

pub const CALLS: &[Call] = &[
    // Ranks of the parent must live on; `assert_whole` looks.
    harmless("bootstrap::LocalRanks::drop", |f| {
        drop(f.ranks);
        Outcome::Done
    }),
    harmless("bootstrap::LocalRanks::joined", |_| done(LocalRanks::joined().is_ok())),
    harmless("bootstrap::LocalRanks::processes", |f| done(f.ranks.processes().count())),
    harmless("bootstrap::LocalRanks::same_program", |_| done(LocalRanks::same_program())),
    refused("bootstrap::LocalRanks::wait", |f| told(f.ranks.wait(soon()))),
    // A child may start ranks of its own; they end at once.
    harmless("bootstrap::LocalRanks::spawn", |_| {
        done(
            LocalRanks::spawn(1, |_| std::process::Command::new("true"))
                .map(|ranks| ranks.wait(soon()))
                .is_ok(),
        )
    }),
    refused("bootstrap::StoreClient::all_gather", |mut f| told(f.store.all_gather("a", b"b", soon()))),
    refused("bootstrap::StoreClient::barrier", |mut f| told(f.store.barrier("a", soon()))),
    harmless("bootstrap::StoreClient::connect", |_| {
        done(StoreClient::connect(nowhere(), at_once()).is_err())
    }),
    harmless("bootstrap::StoreClient::connect_by_name", |_| {
        done(StoreClient::connect_by_name("nobody", 0, 1, at_once()).is_err())
    }),
    harmless("bootstrap::StoreClient::find", |_| {
        let Join { address, token, rank, world } = nowhere();
        done(StoreClient::find(address.ip(), &[1], (token, rank, world), at_once()).is_err())
    }),
    refused("bootstrap::StoreClient::get", |mut f| told(f.store.get("a", soon()))),
    harmless("bootstrap::StoreClient::local_address", |f| done(f.store.local_address())),
    harmless("bootstrap::StoreClient::rank", |f| done(f.store.rank())),
    refused("bootstrap::StoreClient::set", |mut f| told(f.store.set("a", b"b", soon()))),
    harmless("bootstrap::StoreClient::world", |f| done(f.store.world())),
    harmless("bootstrap::StoreOptions::new", |_| done(alone())),
    harmless("bootstrap::StoreServer::address", |f| done(f.server.address())),
    harmless("bootstrap::StoreServer::bind", |_| {
        done(StoreServer::bind(any_port(), alone()).map(drop).is_ok())
    }),
    harmless("bootstrap::StoreServer::bind_by_name", |_| {
        done(StoreServer::bind_by_name(&format!("forked-{}", std::process::id()), alone()).map(drop).is_ok())
    }),
    harmless("bootstrap::StoreServer::bind_first", |_| {
        done(StoreServer::bind_first(any_port().ip(), &[0], &alone()).map(drop).is_ok())
    }),
    refused("bootstrap::StoreServer::close", |f| told(f.server.close(soon()))),
    harmless("bootstrap::StoreServer::drop", |f| {
        drop(f.server);
        Outcome::Done
    }),
    refused("env::Joined::close", |f| {
        // A joined rank of the environment is a client and a server; the server is what it closes.
        told(f.server.close(soon()))
    }),
    // Without a launcher's variables these make a job of one rank, on a device of its own, which a child of a process
    // with a software device cannot have.
    refused("collective::Communicator::init", |f| alone_with(&f, || told(Communicator::init()))),
    refused("collective::Communicator::init_with", |f| {
        alone_with(&f, || told(Communicator::init_with(InitOptions::default())))
    }),
    harmless("env::join", |_| done(env::join(at_once()).is_ok())),
];
