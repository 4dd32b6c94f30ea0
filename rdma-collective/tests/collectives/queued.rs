//! Deadlines of queued operations: each holds for itself, and the error names the late rank.

use std::thread;
use std::time::Duration;

use crate::common::long;
use crate::world::each_communicator;
use rdma_collective::collective::ReduceOp;
use rdma_collective::collective::Tensor;
use rdma_collective::collective::{AbortReason, CollectiveError};
use rdma_collective::collective::{Communicator, CommunicatorOptions, Pending, WaitError};
use rdma_core::{Deadline, Wire};

/// Begins to reduce a few elements.
fn start(comm: &mut Communicator, deadline: Deadline) -> Pending<Tensor<f32>> {
    comm.start_all_reduce(comm.alloc(8).unwrap(), ReduceOp::Sum, deadline).unwrap()
}

/// Asserts that both ranks end because rank 0's operation did not begin in time; the other rank calls `call`.
fn assert_queued(
    first: impl Fn(&mut Communicator) -> CollectiveError + Send + Sync + 'static,
    other: impl Fn(&mut Communicator) -> CollectiveError + Send + Sync + 'static,
) {
    let errors = each_communicator(2, Wire::Local, CommunicatorOptions::default(), move |mut comm| {
        let error = if comm.rank() == 0 { first(&mut comm) } else { other(&mut comm) };
        let after = comm.all_reduce(&mut [1.0_f32], ReduceOp::Sum, long()).unwrap_err();
        let ended =
            matches!(after, CollectiveError::Ended { .. } | CollectiveError::Aborted { culprit: 0, .. });
        assert!(ended, "{after}");
        error
    });
    assert!(matches!(errors[0], CollectiveError::Queued), "{}", errors[0]);
    let reason = AbortReason::Queued;
    let told =
        matches!(&errors[1], CollectiveError::Aborted { culprit: 0, reason: told, .. } if *told == reason);
    assert!(told, "{}", errors[1]);
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_millis(50))
}

#[test]
fn slices_that_miss_their_deadline_behind_pending_operations_end_the_communicator() {
    let first = |comm: &mut Communicator| {
        let pending = start(comm, long());
        let error = comm.all_reduce(&mut [1.0_f32], ReduceOp::Sum, soon()).unwrap_err();
        // A later call must not be taken for the queued one.
        let next = comm.all_reduce(&mut [100.0_f32], ReduceOp::Sum, long()).unwrap_err();
        assert!(matches!(next, CollectiveError::Ended { .. }), "{next}");
        let after = pending.wait(long()).unwrap_err();
        assert!(matches!(after, WaitError::Failed(CollectiveError::Ended { .. })), "{after}");
        error
    };
    assert_queued(first, |comm| {
        thread::sleep(Duration::from_millis(300));
        let pending = start(comm, long());
        let mut ones = [1.0_f32];
        let reduced = comm.all_reduce(&mut ones, ReduceOp::Sum, long());
        drop(pending);
        match reduced {
            Ok(()) => panic!("it is reduced with another operation: {ones:?}"),
            Err(CollectiveError::Ended { first }) => (*first).clone(),
            Err(error) => error,
        }
    });
}

#[test]
fn operations_end_at_their_own_deadline_behind_others_that_have_more_time() {
    let first = |comm: &mut Communicator| {
        let (begun, queued) = (start(comm, long()), start(comm, soon()));
        let WaitError::Failed(error) = queued.wait(Deadline::after(Duration::from_secs(20))).unwrap_err()
        else {
            panic!("it waits for the other one's");
        };
        let begun = begun.wait(long()).unwrap_err();
        assert!(matches!(begun, WaitError::Failed(CollectiveError::Ended { .. })), "{begun}");
        error
    };
    // The other rank calls nothing, and hears of the end all the same.
    assert_queued(first, |comm| comm.failure(Deadline::after(Duration::from_secs(40))).expect("it ends"));
}

#[test]
fn what_is_called_too_late_is_nobody_elses_fault() {
    let past = || Deadline::after(Duration::ZERO);
    assert_queued(
        move |comm| match start(comm, past()).wait(long()).unwrap_err() {
            WaitError::Failed(error) => error,
            other => panic!("{other}"),
        },
        |comm| comm.failure(long()).unwrap(),
    );
    assert_queued(
        move |comm| comm.all_reduce(&mut [1.0_f32], ReduceOp::Sum, past()).unwrap_err(),
        |comm| comm.failure(long()).unwrap(),
    );
}

/// The rank that an error names.
fn culprit(error: &CollectiveError) -> Option<u32> {
    match error {
        CollectiveError::DeadlineExceeded { rank, .. } => Some(*rank),
        CollectiveError::Aborted { culprit, reason: AbortReason::DeadlineExceeded, .. } => Some(*culprit),
        _ => None,
    }
}

#[test]
fn a_rank_that_is_late_is_named_by_all_though_they_wait_for_each_other() {
    for (count, wire) in [(3, Wire::Local), (5000, Wire::Mapped), (1 << 20, Wire::Tcp)] {
        let errors = each_communicator(4, wire, CommunicatorOptions::default(), move |mut comm| {
            // The late rank's engine still sends heartbeats.
            if comm.rank() == 2 {
                return comm.failure(long()).unwrap();
            }
            // The first rank that gives up waits for a rank that itself waits.
            let deadline = Deadline::after(Duration::from_secs(if comm.rank() == 0 { 1 } else { 30 }));
            comm.all_reduce(&mut vec![1.0_f32; count], ReduceOp::Sum, deadline).unwrap_err()
        });
        let found = errors.iter().position(|error| matches!(error, CollectiveError::DeadlineExceeded { .. }));
        assert_eq!(found, Some(0), "{errors:?}");
        assert!(errors.iter().all(|error| culprit(error) == Some(2)), "{errors:?}");
    }
}

#[test]
fn closing_does_not_wait_for_pending_operations_beyond_its_deadline_and_says_so() {
    each_communicator(2, Wire::Local, CommunicatorOptions::default(), |mut comm| {
        if comm.rank() == 1 {
            thread::sleep(Duration::from_millis(300));
            return;
        }
        let pending = start(&mut comm, long());
        let error = comm.close(soon()).unwrap_err();
        assert!(matches!(error, CollectiveError::Unsent), "{error}");
        drop(pending);
    });
}
