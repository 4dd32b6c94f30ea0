//! The eager protocol: operations so small that each rank writes its data into the windows of all others; also with
//! ranks that fail or misbehave.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::common::long;
use crate::world::{each_communicator, each_rank};
use rdma_collective::collective::ReduceOp;
use rdma_collective::collective::{AbortReason, CollectiveError};
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_core::{Deadline, Wire};

const NEAR: [Wire; 2] = [Wire::Local, Wire::Mapped];

fn reduce(comm: &mut Communicator, deadline: Deadline) -> Result<(), CollectiveError> {
    comm.all_reduce(&mut [1.0_f32; 3], ReduceOp::Sum, deadline)
}

/// Sizes on both sides of the eager limit, on slices or tensors as each rank chooses.
#[test]
fn both_ways_alternate_as_they_like() {
    for (wire, ranks) in NEAR.into_iter().zip([5, 3]) {
        each_communicator(ranks, wire, CommunicatorOptions::default(), move |mut comm| {
            let own = u64::from(comm.rank());
            for round in 0..600_u64 {
                let mixed = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                let count = [1, 4, 5, 1023, 1024, 1025, 2000][mixed as usize % 7];
                let expected = u64::from(ranks) * round + u64::from(ranks * (ranks - 1) / 2);
                let mut data = vec![round + own; count];
                if (mixed >> 8 ^ own).is_multiple_of(3) {
                    let mut tensor = comm.alloc::<u64>(count).unwrap();
                    tensor.copy_from_slice(&data);
                    let pending = comm.start_all_reduce(tensor, ReduceOp::Sum, long()).unwrap();
                    data.copy_from_slice(&pending.wait(long()).unwrap());
                } else {
                    comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
                }
                assert!(data.iter().all(|sum| *sum == expected), "round {round} of {count}");
                let root = (mixed % u64::from(ranks)) as u32;
                let mut told = vec![if u64::from(root) == own { round } else { 0 }; count];
                comm.broadcast(&mut told, root, long()).unwrap();
                assert!(told.iter().all(|told| *told == round));
            }
            comm.close(long()).unwrap();
        });
    }
}

#[test]
fn several_communicators_take_turns() {
    each_rank(3, Wire::Mapped, |mut rank| {
        let named =
            |name: &str| CommunicatorOptions { name: name.to_owned(), ..CommunicatorOptions::default() };
        let mut comms = ["a", "b", "c"].map(|name| rank.communicator(named(name)));
        for round in 0..500_u32 {
            for (number, comm) in (0..).zip(&mut comms) {
                let mut data = [round + number, comm.rank()];
                comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
                assert_eq!(data, [3 * (round + number), 3]);
            }
        }
        comms.into_iter().for_each(|comm| comm.close(long()).unwrap());
    });
}

/// Four ranks, one of which never begins. Not every other rank is its neighbour.
#[test]
fn a_rank_that_is_late_is_named_by_all_and_in_time() {
    for wire in NEAR {
        let ended = AtomicU32::new(0);
        let errors = each_communicator(4, wire, CommunicatorOptions::default(), move |mut comm| {
            reduce(&mut comm, long()).unwrap();
            let started = Instant::now();
            if comm.rank() == 2 {
                while ended.load(Ordering::Relaxed) < 3 && started.elapsed() < Duration::from_secs(30) {
                    sleep(Duration::from_millis(5));
                }
                return None;
            }
            let error = reduce(&mut comm, Deadline::after(Duration::from_millis(500))).unwrap_err();
            assert!(started.elapsed() < Duration::from_secs(10), "{error}");
            ended.fetch_add(1, Ordering::Relaxed);
            assert!(matches!(reduce(&mut comm, long()), Err(CollectiveError::Ended { .. })));
            Some(error)
        });
        for error in errors.into_iter().flatten() {
            match error {
                CollectiveError::DeadlineExceeded { rank: 2, interrupted, .. } => {
                    assert_eq!((interrupted.operation.sequence, interrupted.bytes_outstanding), (1, 12));
                }
                CollectiveError::Aborted { culprit: 2, reason: AbortReason::DeadlineExceeded, .. } => {}
                other => panic!("{other}"),
            }
        }
    }
}

#[test]
fn who_comes_a_little_late_is_waited_for() {
    each_communicator(4, Wire::Mapped, CommunicatorOptions::default(), |mut comm| {
        for round in 0..12 {
            if comm.rank() == round % 4 {
                sleep(Duration::from_millis(u64::from(round)));
            }
            reduce(&mut comm, long()).unwrap();
        }
        comm.close(long()).unwrap();
    });
}

#[test]
fn a_rank_that_leaves_in_the_midst_ends_the_others_soon() {
    for wire in NEAR {
        let errors = each_communicator(4, wire, CommunicatorOptions::default(), |mut comm| {
            reduce(&mut comm, long()).unwrap();
            if comm.rank() == 1 {
                sleep(Duration::from_millis(100));
                drop(comm);
                return None;
            }
            let started = Instant::now();
            let error = reduce(&mut comm, long()).unwrap_err();
            assert!(started.elapsed() < Duration::from_secs(10), "{error}");
            Some(error)
        });
        for error in errors.into_iter().flatten() {
            assert!(
                matches!(
                    error,
                    CollectiveError::PeerFailed { rank: 1, .. } | CollectiveError::Aborted { culprit: 1, .. }
                ),
                "{error}"
            );
        }
    }
}

#[test]
fn an_abort_ends_one_that_is_waited_in_and_all_later_ones() {
    let errors = each_communicator(4, Wire::Mapped, CommunicatorOptions::default(), |mut comm| {
        reduce(&mut comm, long()).unwrap();
        if comm.rank() == 3 {
            let aborter = comm.aborter();
            thread::spawn(move || {
                sleep(Duration::from_millis(100));
                aborter.abort();
            });
            comm.failure(long()).unwrap();
        }
        let error = reduce(&mut comm, long()).unwrap_err();
        assert!(matches!(reduce(&mut comm, long()), Err(CollectiveError::Ended { .. })));
        error
    });
    for error in errors {
        let CollectiveError::Aborted { culprit: 3, reason: AbortReason::Requested, .. } = error else {
            panic!("{error}");
        };
    }
}

#[test]
fn a_deadline_that_has_passed_is_too_late_to_begin() {
    let errors = each_communicator(2, Wire::Mapped, CommunicatorOptions::default(), |mut comm| {
        reduce(&mut comm, long()).unwrap();
        let deadline = if comm.rank() == 1 { Deadline::after(Duration::ZERO) } else { long() };
        reduce(&mut comm, deadline).unwrap_err()
    });
    assert!(matches!(errors[1], CollectiveError::Queued), "{}", errors[1]);
    let CollectiveError::Aborted { culprit: 1, reason: AbortReason::Queued, .. } = errors[0] else {
        panic!("{}", errors[0]);
    };
}
