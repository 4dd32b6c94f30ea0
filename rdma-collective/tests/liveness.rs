//! Ranks that are told to stop, and what the others know of it: every other one ends soon, and knows whose doing it is.

mod common;
mod world;

use std::thread;
use std::time::{Duration, Instant};

use common::{WIRES, long};
use rdma_collective::collective::ReduceOp;
use rdma_collective::collective::{AbortReason, CollectiveError};
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_collective::engine::EngineOptions;
use rdma_core::{Device, SoftOptions, Wire};
use world::{each_communicator, each_rank_on};

fn reduce(comm: &mut Communicator) -> Result<(), CollectiveError> {
    comm.all_reduce(&mut [1.0_f32; 5000], ReduceOp::Sum, long())
}

/// The rank that an error blames.
fn culprit(error: &CollectiveError) -> Option<u32> {
    match error {
        CollectiveError::PeerFailed { rank, .. } | CollectiveError::DeadlineExceeded { rank, .. } => {
            Some(*rank)
        }
        CollectiveError::Aborted { culprit, .. } => Some(*culprit),
        CollectiveError::Ended { first } => culprit(first),
        _ => None,
    }
}

#[test]
fn abort_ends_pending_and_later_operations_on_all_ranks_and_names_who_asked() {
    for wire in WIRES {
        let errors = each_communicator(4, wire, CommunicatorOptions::default(), |mut comm| {
            if comm.rank() != 2 {
                let error = reduce(&mut comm).and_then(|()| reduce(&mut comm)).unwrap_err();
                assert!(matches!(reduce(&mut comm), Err(CollectiveError::Ended { .. })));
                return error;
            }
            reduce(&mut comm).unwrap();
            let aborter = comm.aborter();
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(100));
                aborter.abort();
                aborter.clone().abort();
            });
            // This rank takes no part in the operation, and ends all the same.
            comm.failure(long()).unwrap()
        });
        for error in errors {
            let CollectiveError::Aborted { culprit: 2, reason: AbortReason::Requested, .. } = error else {
                panic!("{error}");
            };
        }
    }
}

#[test]
fn an_aborter_may_outlive_its_communicator() {
    let aborters = each_communicator(2, Wire::Local, CommunicatorOptions::default(), |comm| {
        let aborter = comm.aborter();
        comm.close(long()).unwrap();
        aborter
    });
    aborters.iter().for_each(rdma_collective::collective::Aborter::abort);
}

#[test]
fn ranks_that_are_between_operations_are_told_and_pass_it_on() {
    for wire in WIRES {
        let errors = each_communicator(5, wire, CommunicatorOptions::default(), |mut comm| {
            if let Err(early) = reduce(&mut comm) {
                return early;
            }
            match comm.rank() {
                0 => {
                    thread::sleep(Duration::from_millis(100));
                    comm.aborter().abort();
                    comm.failure(long()).unwrap()
                }
                // Neither of them calls anything, nor is a neighbour of the first.
                2 | 3 => comm.failure(long()).unwrap(),
                _ => reduce(&mut comm).unwrap_err(),
            }
        });
        for error in errors {
            assert_eq!(culprit(&error), Some(0), "{error}");
        }
    }
}

#[test]
fn nothing_is_wrong_with_ranks_that_wait_and_leave_in_order() {
    let known = each_communicator(3, Wire::Tcp, CommunicatorOptions::default(), |mut comm| {
        reduce(&mut comm).unwrap();
        let known = comm.failure(rdma_core::Deadline::after(Duration::from_millis(300)));
        reduce(&mut comm).unwrap();
        comm.close(long()).unwrap();
        known
    });
    assert!(known.iter().all(Option::is_none), "{known:?}");
}

#[test]
fn whoever_sleeps_in_an_operation_is_woken_by_an_abort() {
    // Nothing else wakes it for a second.
    let (heartbeat, peer_timeout) = (Duration::from_secs(10), Duration::from_secs(20));
    let options = EngineOptions { heartbeat, peer_timeout, ..EngineOptions::default() };
    let device = |_| Device::soft(SoftOptions::default()).open().unwrap();
    let at_once = |round: u32| {
        let late = each_rank_on(2, options.clone(), device, move |mut rank| {
            let options = CommunicatorOptions { epoch: round, ..CommunicatorOptions::default() };
            let mut comm = rank.communicator(options);
            if comm.rank() == 1 {
                assert!(comm.failure(long()).is_some());
                return Duration::ZERO;
            }
            let aborter = comm.aborter();
            let aborted = thread::spawn(move || {
                thread::sleep(Duration::from_millis(100));
                aborter.abort();
                Instant::now()
            });
            reduce(&mut comm).unwrap_err();
            let now = Instant::now();
            now.saturating_duration_since(aborted.join().unwrap())
        });
        late[0] < Duration::from_millis(500)
    };
    assert!((0..3).any(at_once), "it sleeps on");
}
