//! Ranks that cannot join: each test has one cause, asserts the error on both sides, and joins once the cause is gone.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::long;
use rdma_collective::bootstrap::BootstrapError;
use rdma_collective::bootstrap::{JobToken, Join, StoreClient, StoreOptions, StoreServer};
use rdma_collective::collective::CommunicatorError;
use rdma_collective::collective::ReduceOp;
use rdma_collective::collective::{AbortReason, CollectiveError};
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_collective::engine::SetupError;
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_core::{Deadline, Device, SoftOptions, Wire};

const TOKEN: JobToken = JobToken::from_bytes([7; 16]);

fn shortly() -> Deadline {
    Deadline::after(Duration::from_secs(1))
}

fn engine(wire: Wire) -> Engine {
    let context = Device::soft(SoftOptions { wire, ..SoftOptions::default() }).open().unwrap();
    Engine::new(&context, EngineOptions::default()).unwrap()
}

fn epoch(epoch: u32) -> CommunicatorOptions {
    CommunicatorOptions { epoch, ..CommunicatorOptions::default() }
}

/// Runs `body` as each of two ranks that have joined one store.
fn two<T: Send>(body: impl Fn(u32, &mut StoreClient) -> T + Sync) -> [T; 2] {
    let server = StoreServer::bind("127.0.0.1:0".parse().unwrap(), StoreOptions::new(TOKEN, 2)).unwrap();
    let address = server.address();
    let run = |rank| {
        let join = Join { address, token: TOKEN, rank, world: 2 };
        body(rank, &mut StoreClient::connect(join, long()).unwrap())
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        [run(0), other.join().unwrap()]
    })
}

/// Asserts that both ranks work after all.
fn sum(comm: &mut Communicator) {
    let mut data = vec![1.0_f32; 1000];
    comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
    assert!(data.iter().all(|sum| *sum == 2.0));
}

#[test]
fn a_rank_with_a_stale_epoch_is_named_and_makes_the_next_one_with_the_others() {
    let errors = two(|rank, store| {
        let engine = engine(Wire::Local);
        let error = Communicator::new(&engine, store, epoch(5 - rank), shortly()).unwrap_err();
        let mut comm = Communicator::new(&engine, store, epoch(6), long()).unwrap();
        sum(&mut comm);
        comm.close(long()).unwrap();
        error
    });
    for (rank, error) in (0..).zip(errors) {
        let CommunicatorError::Bootstrap(BootstrapError::RanksMissing { name, missing, .. }) = &error else {
            panic!("rank {rank}: {error}");
        };
        assert_eq!(missing.first(), [1 - rank], "{error}");
        assert_eq!(*name, format!("comm/world/{}/ranks", 5 - rank), "{error}");
    }
}

#[test]
fn a_rank_that_joins_late_is_waited_for() {
    two(|rank, store| {
        if rank == 1 {
            thread::sleep(Duration::from_millis(1500));
        }
        let engine = engine(Wire::Local);
        let mut comm = Communicator::new(&engine, store, epoch(0), long()).unwrap();
        sum(&mut comm);
        comm.close(long()).unwrap();
    });
}

#[test]
fn a_rank_that_joins_too_late_is_named_by_the_others_and_told_that_they_have_left() {
    let server = StoreServer::bind("127.0.0.1:0".parse().unwrap(), StoreOptions::new(TOKEN, 2)).unwrap();
    let join = |rank| {
        let join = Join { address: server.address(), token: TOKEN, rank, world: 2 };
        StoreClient::connect(join, long()).unwrap()
    };
    let engine = engine(Wire::Local);
    let error = Communicator::new(&engine, &mut join(0), epoch(0), shortly()).unwrap_err();
    let missing = |missing: &[u32]| {
        matches!(&error, CommunicatorError::Bootstrap(BootstrapError::RanksMissing { missing: found, .. })
            if found.first() == missing)
    };
    assert!(missing(&[1]), "{error}");
    let error = Communicator::new(&engine, &mut join(1), epoch(0), long()).unwrap_err();
    assert!(
        matches!(error, CommunicatorError::Bootstrap(BootstrapError::RankLeft { rank: 0, .. })),
        "{error}"
    );
}

#[test]
fn ranks_with_devices_on_different_wires_are_told_so() {
    let errors = two(|rank, store| {
        let unlike = engine(if rank == 0 { Wire::Local } else { Wire::Tcp });
        let error = Communicator::new(&unlike, store, epoch(0), long()).unwrap_err();
        let mut comm = Communicator::new(&engine(Wire::Tcp), store, epoch(1), long()).unwrap();
        sum(&mut comm);
        comm.close(long()).unwrap();
        error.to_string()
    });
    // The rank that cannot connect gives the reason, and the other repeats it.
    assert!(errors[1].contains("wire"), "{}", errors[1]);
    assert_eq!(errors[0], format!("rank 1 could not be set up: {}; mend it there", errors[1]));
}

#[test]
fn what_the_device_refuses_one_rank_is_an_error_of_all_at_once() {
    let begin = Instant::now();
    let errors = two(|rank, store| {
        let max_mr_size = if rank == 1 { 4096 } else { SoftOptions::default().max_mr_size };
        let small = Device::soft(SoftOptions { max_mr_size, ..SoftOptions::default() }).open().unwrap();
        let small = Engine::new(&small, EngineOptions::default()).unwrap();
        let error = Communicator::new(&small, store, epoch(0), long()).unwrap_err();
        let mut comm = Communicator::new(&engine(Wire::Local), store, epoch(1), long()).unwrap();
        sum(&mut comm);
        error
    });
    assert!(begin.elapsed() < Duration::from_secs(40), "they waited for their deadlines");
    assert!(matches!(errors[1], CommunicatorError::Setup(SetupError::Register(_))), "{}", errors[1]);
    let expected = format!("rank 1 could not be set up: {}; mend it there", errors[1]);
    assert_eq!(errors[0].to_string(), expected);
}

#[test]
fn ranks_that_sum_different_types_or_counts_are_both_told_and_name_each_other() {
    let errors = two(|rank, store| {
        let engine = engine(Wire::Local);
        let mut of_two_types = Communicator::new(&engine, store, epoch(0), long()).unwrap();
        let types = match rank {
            0 => of_two_types.all_reduce(&mut [1.0_f32; 100], ReduceOp::Sum, long()),
            _ => of_two_types.all_reduce(&mut [1_i32; 100], ReduceOp::Sum, long()),
        };
        let mut of_two_counts = Communicator::new(&engine, store, epoch(1), long()).unwrap();
        let mut data = vec![1.0_f32; 100 + rank as usize];
        let counts = of_two_counts.all_reduce(&mut data, ReduceOp::Sum, long());
        let mut comm = Communicator::new(&engine, store, epoch(2), long()).unwrap();
        sum(&mut comm);
        [types.unwrap_err(), counts.unwrap_err()]
    });
    for errors in errors {
        for error in errors {
            let text = error.to_string();
            // The rank that finds the difference tells the other.
            let known = matches!(
                error,
                CollectiveError::Mismatch { .. }
                    | CollectiveError::Aborted { reason: AbortReason::Mismatch, .. }
            );
            assert!(known, "{text}");
            let both = [["rank 0", "rank 1"], ["ranks", "1 and 0"], ["ranks", "0 and 1"]];
            assert!(both.iter().any(|names| names.iter().all(|name| text.contains(name))), "{text}");
        }
    }
}
