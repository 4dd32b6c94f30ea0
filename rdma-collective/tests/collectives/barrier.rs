//! Barriers: no rank returns before all have called, over any wire.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::common::{WIRES, long};
use crate::world::each_communicator;
use rdma_collective::collective::ReduceOp;
use rdma_collective::collective::{AbortReason, CollectiveError};
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_core::{Deadline, Wire};

#[test]
fn nobody_returns_before_all_have_come() {
    for wire in WIRES {
        for (ranks, reproducible) in [(1, false), (2, false), (3, true), (5, false)] {
            let come = AtomicU32::new(0);
            let options = CommunicatorOptions { reproducible, ..CommunicatorOptions::default() };
            each_communicator(ranks, wire, options, move |mut comm| {
                for round in 0..40 {
                    if round % ranks == comm.rank() {
                        sleep(Duration::from_millis(2));
                    }
                    come.fetch_add(1, Ordering::SeqCst);
                    if (round + comm.rank()).is_multiple_of(3) {
                        comm.start_barrier(long()).unwrap().wait(long()).unwrap();
                    } else {
                        comm.barrier(long()).unwrap();
                    }
                    let come = come.load(Ordering::SeqCst);
                    assert!(come >= ranks * (round + 1), "{come} in round {round} of {ranks} over {wire:?}");
                }
                comm.close(long()).unwrap();
            });
        }
    }
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    for wire in WIRES {
        let errors = each_communicator(3, wire, CommunicatorOptions::default(), |mut comm| {
            if comm.rank() == 1 {
                comm.failure(long())
            } else {
                comm.barrier(Deadline::after(Duration::from_millis(500))).err()
            }
        });
        for error in errors.into_iter().flatten() {
            assert!(
                matches!(
                    error,
                    CollectiveError::DeadlineExceeded { rank: 1, .. }
                        | CollectiveError::Aborted { culprit: 1, .. }
                ),
                "{wire:?}: {error}"
            );
        }
    }
}

#[test]
fn a_rank_that_calls_something_else_is_an_error_that_quotes_it() {
    type Other = fn(&mut Communicator) -> Result<(), CollectiveError>;
    let others: [Other; 3] = [
        |comm| comm.all_reduce::<u8>(&mut [], ReduceOp::Sum, long()),
        |comm| comm.all_gather::<u8>(&mut [], long()),
        |comm| comm.all_reduce(&mut [1_u8; 20_000], ReduceOp::Sum, long()),
    ];
    for wire in [Wire::Mapped, Wire::Tcp] {
        for other in others {
            let errors = each_communicator(2, wire, CommunicatorOptions::default(), move |mut comm| {
                // Without a reduction, a rank hears of the failure only in its next call.
                let mut call = || if comm.rank() == 1 { other(&mut comm) } else { comm.barrier(long()) };
                call().and_then(|()| call()).unwrap_err()
            });
            let mut quoted = false;
            for error in errors {
                match error {
                    CollectiveError::Mismatch { ours, theirs, .. } => {
                        quoted |= [&ours, &theirs]
                            .iter()
                            .any(|name| name.collective == "barrier" && name.count == 0);
                    }
                    CollectiveError::Aborted { reason: AbortReason::Mismatch, .. } => {}
                    other => panic!("{wire:?}: {other}"),
                }
            }
            assert!(quoted, "{wire:?}");
        }
    }
}
