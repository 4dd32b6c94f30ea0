//! Deferred operations: begun in the caller's thread on memory of the library, and not the engine's yet. Small or
//! large, they end like all others, whatever happens to their handles.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::common::{block_on, forget, long};
use crate::world::{Rank, each_communicator, each_rank_on};
use rdma_collective::collective::{AbortReason, CollectiveError};
use rdma_collective::collective::{Communicator, CommunicatorOptions, Pending, WaitError};
use rdma_collective::collective::{ReduceOp, Tensor};
use rdma_collective::engine::{Driver, EngineOptions};
use rdma_core::{Deadline, Device, SoftOptions, Wire};

/// Element counts: one for the eager protocol, one for zero copy.
const COUNTS: [usize; 2] = [3, 5000];

/// Begins to reduce `count` times `value`.
fn start(comm: &mut Communicator, count: usize, value: u64, deadline: Deadline) -> Pending<Tensor<u64>> {
    let mut tensor = comm.alloc(count).unwrap();
    tensor.fill(value);
    comm.start_all_reduce(tensor, ReduceOp::Sum, deadline).unwrap()
}

fn assert_all(tensor: &Tensor<u64>, value: u64) {
    assert!(tensor.iter().all(|element| *element == value), "{} and others, not {value}", tensor[0]);
}

fn polled(mut pending: Pending<Tensor<u64>>) -> Tensor<u64> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match pending.poll() {
            Poll::Ready(tensor) => return tensor.unwrap(),
            Poll::Pending => assert!(Instant::now() < until, "it does not end"),
        }
    }
}

#[test]
fn handles_are_waited_for_polled_awaited_dropped_and_forgotten_in_any_order() {
    for (wire, count) in [(Wire::Local, 0), (Wire::Mapped, 1), (Wire::Local, 1), (Wire::Mapped, 0)] {
        let count = COUNTS[count];
        each_communicator(3, wire, CommunicatorOptions::default(), move |mut comm| {
            let own = u64::from(comm.rank());
            for round in 0..400 {
                let sum = 3 * round + 3;
                let pending = start(&mut comm, count, round + own, long());
                let mixed = (round + 1000 * own).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                match mixed % 8 {
                    0 => drop(pending),
                    1 => forget(pending),
                    2 => assert_all(&polled(pending), sum),
                    3 => assert_all(&block_on(pending).unwrap(), sum),
                    4 => {
                        // Another thread waits, while this one goes on.
                        thread::scope(|scope| {
                            scope.spawn(move || {
                                assert_all(&pending.wait(long()).unwrap(), sum);
                            });
                            comm.barrier(long()).unwrap();
                        });
                        continue;
                    }
                    5 => {
                        comm.barrier(long()).unwrap();
                        assert_all(&pending.wait(long()).unwrap(), sum);
                        continue;
                    }
                    _ => assert_all(&pending.wait(long()).unwrap(), sum),
                }
                comm.start_barrier(long()).unwrap().wait(long()).unwrap();
            }
            comm.close(long()).unwrap();
        });
    }
}

#[test]
fn a_failure_is_found_though_nobody_waits() {
    // Longer than a thread may sleep, and shorter.
    for (left, count) in [(3000, 0), (300, 0), (3000, 1), (300, 1)] {
        let (left, count) = (Duration::from_millis(left), COUNTS[count]);
        let errors = each_communicator(2, Wire::Mapped, CommunicatorOptions::default(), move |mut comm| {
            if comm.rank() == 0 {
                forget(start(&mut comm, count, 1, Deadline::after(left)));
            }
            comm.failure(long()).unwrap()
        });
        let CollectiveError::Aborted { culprit: 1, reason: AbortReason::DeadlineExceeded, .. } = errors[1]
        else {
            panic!("{}", errors[1]);
        };
        assert!(matches!(errors[0], CollectiveError::DeadlineExceeded { rank: 1, .. }), "{}", errors[0]);
    }
    // Rank 1 calls something else.
    let errors = COUNTS.map(|count| {
        each_communicator(2, Wire::Mapped, CommunicatorOptions::default(), move |mut comm| {
            if comm.rank() == 0 {
                forget(start(&mut comm, count, 1, long()));
                return comm.failure(long()).unwrap();
            }
            comm.barrier(long()).unwrap_err()
        })
    });
    for error in errors.into_iter().flatten() {
        assert!(
            matches!(
                error,
                CollectiveError::Mismatch { .. }
                    | CollectiveError::Aborted { reason: AbortReason::Mismatch, .. }
            ),
            "{error}"
        );
    }
}

#[test]
fn an_abort_ends_one_that_nobody_has_looked_for_yet() {
    for count in COUNTS {
        let begun = AtomicU32::new(0);
        each_communicator(2, Wire::Local, CommunicatorOptions::default(), move |mut comm| {
            start(&mut comm, count, 1, long()).wait(long()).unwrap();
            let pending = (comm.rank() == 0).then(|| start(&mut comm, count, 1, long()));
            begun.fetch_add(1, Ordering::Relaxed);
            while begun.load(Ordering::Relaxed) < 2 {
                sleep(Duration::from_millis(1));
            }
            let Some(pending) = pending else {
                comm.aborter().abort();
                return;
            };
            match pending.wait(long()).unwrap_err() {
                WaitError::Failed(CollectiveError::Aborted {
                    culprit: 1,
                    reason: AbortReason::Requested,
                    ..
                }) => {}
                error => panic!("{error}"),
            }
        });
    }
}

/// Two ranks whose engines are driven by their callers.
fn each_driver(body: impl Fn(Rank) + Send + Sync + 'static) {
    let options = EngineOptions { driver: Driver::Caller, ..EngineOptions::default() };
    let device = |_| Device::soft(SoftOptions::default()).open().unwrap();
    each_rank_on(2, options, device, body);
}

#[test]
fn a_callers_loop_drives_them() {
    each_driver(|mut rank| {
        let mut comm = rank.communicator(CommunicatorOptions::default());
        for (round, count) in (0..100).zip(COUNTS.into_iter().cycle()) {
            if round % 8 == u64::from(comm.rank()) {
                sleep(Duration::from_millis(5));
            }
            let pending = start(&mut comm, count, round, long());
            let due = rank.engine.next_deadline().expect("it is to be looked for");
            assert!(due < Instant::now() + Duration::from_secs(1));
            assert_all(&polled(pending), 2 * round);
        }
    });
}

#[test]
fn others_go_on_while_the_only_caller_is_in_a_long_one_on_slices() {
    each_driver(|mut rank| {
        let mut others = rank.communicator(CommunicatorOptions::default());
        let mut comm = rank.communicator(CommunicatorOptions::default());
        // This operation needs the engine several times.
        let mut pending = pin!(start(&mut others, 1 << 17, 1, long()).into_future());
        comm.all_reduce(&mut vec![1_u64; 4 << 20], ReduceOp::Sum, long()).unwrap();
        match pending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(tensor) => assert_all(&tensor.unwrap(), 2),
            Poll::Pending => panic!("it was left where it was"),
        }
    });
}

#[test]
fn what_nobody_waits_for_goes_on_all_the_same() {
    let ended = AtomicU32::new(0);
    each_communicator(2, Wire::Mapped, CommunicatorOptions::default(), move |mut comm| {
        for (round, count) in (0..40).zip(COUNTS.into_iter().cycle()) {
            let pending = start(&mut comm, count, round.into(), long());
            let deadline = long();
            // The other rank completes while this rank's caller does something else.
            while comm.rank() == 0 && ended.load(Ordering::Acquire) == round {
                assert!(!deadline.expired(), "it is left where it is");
                sleep(Duration::from_micros(100));
            }
            assert_all(&pending.wait(long()).unwrap(), 2 * u64::from(round));
            if comm.rank() == 1 {
                ended.store(round + 1, Ordering::Release);
            }
        }
    });
}
