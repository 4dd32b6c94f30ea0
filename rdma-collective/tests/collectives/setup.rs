//! Ranks that are lost while a communicator is made: the others fail soon, and name them.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::{introduction, long};
use rdma_collective::bootstrap::BootstrapError;
use rdma_collective::bootstrap::{JobToken, Join, StoreClient, StoreOptions, StoreServer};
use rdma_collective::collective::CommunicatorError;
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_core::{Device, SoftOptions};

/// The errors of the other two ranks if rank 1 of three does `instead` of making its communicator, and ends.
fn without_rank_1(instead: fn(StoreClient)) -> Vec<CommunicatorError> {
    let token = JobToken::random().unwrap();
    let server = StoreServer::bind("127.0.0.1:0".parse().unwrap(), StoreOptions::new(token, 3)).unwrap();
    let address = server.address();
    let others: Vec<_> = (0..3)
        .map(|rank| {
            let join = Join { address, token, rank, world: 3 };
            thread::spawn(move || {
                let mut store = StoreClient::connect(join, long()).unwrap();
                if rank == 1 {
                    instead(store);
                    return None;
                }
                let context = Device::soft(SoftOptions::default()).open().unwrap();
                let engine = Engine::new(&context, EngineOptions::default()).unwrap();
                let options = CommunicatorOptions::default();
                Some(Communicator::new(&engine, &mut store, options, long()).unwrap_err())
            })
        })
        .collect();
    others.into_iter().filter_map(|other| other.join().unwrap()).collect()
}

fn assert_named_soon(instead: fn(StoreClient)) {
    let begin = Instant::now();
    for error in without_rank_1(instead) {
        let named = matches!(error, CommunicatorError::Bootstrap(BootstrapError::RankLeft { rank: 1, .. }));
        assert!(named, "{error}");
    }
    assert!(begin.elapsed() < Duration::from_secs(40), "they waited for their deadlines");
}

#[test]
fn a_rank_that_is_lost_before_it_is_introduced_is_named_long_before_the_deadline() {
    assert_named_soon(|mut store| {
        store.set("anything", b"", long()).unwrap();
    });
}

#[test]
fn a_rank_that_is_lost_before_it_has_a_queue_pair_is_named_long_before_the_deadline() {
    assert_named_soon(|mut store| {
        store.all_gather("comm/world/0/ranks", &introduction(), long()).unwrap();
    });
}
