//! Ranks that only send: they complete before the others have called. Whatever the others had called instead, a later
//! operation or the close reports it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use crate::common::long;
use crate::world::each_communicator;
use rdma_collective::collective::ReduceOp;
use rdma_collective::collective::{AbortReason, CollectiveError};
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_core::{Deadline, Wire};

const NEAR: [Wire; 2] = [Wire::Local, Wire::Mapped];
/// By eager messages, and over links.
const NEAR_AND_FAR: [Wire; 2] = [Wire::Mapped, Wire::Tcp];
const RANKS: u32 = 3;
/// Rounds in which a rank that only sends waits for nobody.
const ROUNDS: u32 = 3;

/// Over links, a rank of a tree that only sends waits for nobody.
fn by_trees() -> CommunicatorOptions {
    CommunicatorOptions { algorithms: "flat,tree".parse().unwrap(), ..CommunicatorOptions::default() }
}

type Operation = fn(&mut Communicator, &mut [u32; RANKS as usize]) -> Result<(), CollectiveError>;

/// The operations in which rank 0 sends, and those in which it receives.
const GIVES: [Operation; 2] =
    [|comm, data| comm.broadcast(data, 0, long()), |comm, data| comm.scatter(data, 0, long())];
const TAKES: [Operation; 2] =
    [|comm, data| comm.reduce(data, ReduceOp::Sum, 0, long()), |comm, data| comm.gather(data, 0, long())];

fn until(counter: &AtomicU32, count: u32) {
    let started = Instant::now();
    while counter.load(Ordering::Acquire) < count {
        assert!(started.elapsed() < Duration::from_secs(30), "who only gives waits for those that take");
        yield_now();
    }
}

#[test]
fn who_only_gives_is_done_before_the_others_come() {
    for wire in NEAR {
        let done = AtomicU32::new(0);
        each_communicator(RANKS, wire, CommunicatorOptions::default(), move |mut comm| {
            let (own, mut expected) = (comm.rank(), 0);
            for (operations, root_gives) in [(GIVES, true), (TAKES, false)] {
                for operation in operations {
                    let gives = (own == 0) == root_gives;
                    expected += if root_gives { 1 } else { RANKS - 1 };
                    if !gives {
                        until(&done, expected);
                    }
                    for round in 0..ROUNDS {
                        let mut data = [round + own; RANKS as usize];
                        operation(&mut comm, &mut data).unwrap();
                        if !gives {
                            let seen = data[own as usize];
                            assert!(seen == round || seen == 3 * round + 3, "{data:?} of round {round}");
                        }
                    }
                    if gives {
                        done.fetch_add(1, Ordering::Release);
                    }
                    comm.barrier(long()).unwrap();
                }
            }
            comm.close(long()).unwrap();
        });
    }
}

#[test]
fn a_barrier_behind_what_was_given_is_one() {
    for wire in NEAR {
        let come = AtomicU32::new(0);
        each_communicator(RANKS, wire, CommunicatorOptions::default(), move |mut comm| {
            for round in 1..20 {
                comm.broadcast(&mut [1.0_f32], 0, long()).unwrap();
                if comm.rank() != 0 {
                    sleep(Duration::from_millis(2));
                    come.fetch_add(1, Ordering::Relaxed);
                }
                comm.barrier(long()).unwrap();
                assert!(come.load(Ordering::Relaxed) >= round * (RANKS - 1), "round {round}");
                comm.barrier(long()).unwrap();
            }
            comm.close(long()).unwrap();
        });
    }
}

/// At the limit, a rank that only sends waits, and names the rank that it waits for.
#[test]
fn who_never_comes_is_named_by_a_rank_that_only_gives() {
    let ended = AtomicU32::new(0);
    let errors = each_communicator(2, Wire::Mapped, CommunicatorOptions::default(), move |mut comm| {
        comm.barrier(long()).unwrap();
        if comm.rank() == 1 {
            until(&ended, 1);
            return None;
        }
        let soon = || Deadline::after(Duration::from_millis(300));
        let failed = (0..100)
            .find_map(|number| comm.broadcast(&mut [1.0_f32], 0, soon()).err().map(|error| (number, error)));
        ended.fetch_add(1, Ordering::Release);
        failed
    });
    let (number, error) = errors.into_iter().flatten().next().expect("it is ahead without a bound");
    assert!(number >= ROUNDS, "{number}");
    assert!(matches!(error, CollectiveError::DeadlineExceeded { rank: 1, .. }), "{error}");
}

/// Each rank sends what the other does not receive, and both complete. The next operation in which they meet reports
/// it.
#[test]
fn ranks_that_gave_in_different_operations_hear_of_it_where_they_meet_next() {
    for (wire, count) in
        NEAR_AND_FAR.map(|wire| [0, 3, 10_000, 1_000_000].map(|count| (wire, count))).concat()
    {
        let errors = each_communicator(2, wire, by_trees(), move |mut comm| {
            // The links of the tree are made.
            comm.reduce(&mut [1.0_f32], ReduceOp::Sum, 0, long()).unwrap();
            let other = 1 - comm.rank();
            // Over links the message of the other rank may be there already.
            let given = comm.reduce(&mut [1.0_f32], ReduceOp::Sum, other, long());
            let meet = |()| comm.all_reduce(&mut vec![1.0_f32; count], ReduceOp::Sum, long());
            given.and_then(meet).unwrap_err()
        });
        let mut seen = 0;
        for error in &errors {
            match error {
                CollectiveError::Mismatch { rank, peer, ours, theirs } => {
                    assert_eq!((ours.sequence, theirs.sequence), (1, 1), "{error}");
                    assert!(ours.of.ends_with(&format!("to rank {peer}")), "{error}");
                    assert!(theirs.of.ends_with(&format!("to rank {rank}")), "{error}");
                    seen += 1;
                }
                CollectiveError::Aborted { reason: AbortReason::Mismatch, .. } => {}
                other => panic!("{other}"),
            }
        }
        assert!(seen > 0, "{errors:?}");
    }
}

/// A rank that comes over the ring or over links is compared with the call of that time, and not with the present one.
#[test]
fn a_rank_that_was_in_another_operation_is_told_of_with_what_was_called_in_its_place() {
    const MANY: usize = 30_000;
    let later: [Operation; 3] = [
        |comm, data| comm.all_reduce(data, ReduceOp::Sum, long()),
        |comm, _| comm.all_reduce(&mut vec![1.0_f32; MANY], ReduceOp::Sum, long()),
        |comm, _| comm.all_to_all(&mut vec![1.0_f32; 2 * MANY], long()),
    ];
    let others: [Operation; 2] = [
        |comm, _| comm.all_gather(&mut vec![1.0_f32; 2 * MANY], long()),
        |comm, _| comm.all_to_all(&mut vec![1.0_f32; 2 * MANY], long()),
    ];
    let options = || CommunicatorOptions {
        algorithms: "flat,ring,pairs".parse().unwrap(),
        ..CommunicatorOptions::default()
    };
    for (later, other) in later.into_iter().flat_map(|later| others.map(|other| (later, other))) {
        let begun = AtomicU32::new(0);
        let errors = each_communicator(2, Wire::Mapped, options(), move |mut comm| {
            let mut data = [1; RANKS as usize];
            if comm.rank() == 1 {
                begun.fetch_add(1, Ordering::Release);
                return other(&mut comm, &mut data).unwrap_err();
            }
            until(&begun, 1);
            // Rank 1 has then polled before anything arrives.
            sleep(Duration::from_millis(2));
            comm.broadcast(&mut data, 0, long()).unwrap();
            comm.scatter(&mut data[..2], 0, long()).and_then(|()| later(&mut comm, &mut data)).unwrap_err()
        });
        for error in &errors {
            match error {
                CollectiveError::Mismatch { rank, ours, theirs, .. } => {
                    let calls = if *rank == 0 { [ours, theirs] } else { [theirs, ours] };
                    assert_eq!(calls.map(|call| call.sequence), [0, 0], "{error}");
                    assert_eq!(calls[0].collective, "broadcast", "{error}");
                }
                CollectiveError::Aborted { reason: AbortReason::Mismatch, .. } => {}
                other => panic!("{other}"),
            }
        }
    }
}

/// A rank that waits for room makes progress when it gets some.
#[test]
fn room_is_progress() {
    let room_after = Duration::from_secs(1);
    let errors = each_communicator(2, Wire::Mapped, CommunicatorOptions::default(), move |mut comm| {
        let mut data = [1.0_f32];
        if comm.rank() == 1 {
            sleep(room_after);
        }
        for _ in 0..=ROUNDS {
            comm.broadcast(&mut data, 0, long()).unwrap();
        }
        let error = (comm.rank() == 0).then(|| {
            let deadline = Deadline::after(3 * room_after);
            comm.all_reduce(&mut data, ReduceOp::Sum, deadline).unwrap_err()
        });
        if error.is_none() {
            let _ = comm.failure(long());
        }
        error
    });
    match errors.into_iter().flatten().next().unwrap() {
        CollectiveError::DeadlineExceeded { rank: 1, waited, interrupted, .. } => {
            let idle = interrupted.last_progress;
            assert!(idle + room_after / 2 < waited, "{idle:?} of {waited:?} without any");
        }
        other => panic!("{other}"),
    }
}

/// If the ranks do not meet again, closing the communicator reports the mismatch.
#[test]
fn ranks_that_gave_in_different_operations_last_hear_of_it_when_they_leave() {
    // Over TCP often, because a rank may get the other's message sooner.
    for wire in [Wire::Local, Wire::Mapped].into_iter().chain([Wire::Tcp; 20]) {
        let left = each_communicator(2, wire, by_trees(), |mut comm| {
            // The links of the tree are made.
            comm.reduce(&mut [1.0_f32], ReduceOp::Sum, 0, long()).unwrap();
            let other = 1 - comm.rank();
            match comm.reduce(&mut [1.0_f32], ReduceOp::Sum, other, long()) {
                Ok(()) => (comm.rank(), comm.close(long())),
                Err(error) => (comm.rank(), Err(error)),
            }
        });
        let mut seen = 0;
        for (rank, left) in left {
            match left {
                Ok(()) => {}
                Err(CollectiveError::Mismatch { rank: own, peer, ours, theirs }) => {
                    assert_eq!((own, peer, ours.sequence, theirs.sequence), (rank, 1 - rank, 1, 1));
                    seen += 1;
                }
                // The other rank has told of it.
                Err(CollectiveError::Aborted {
                    culprit, reporter, reason: AbortReason::Mismatch, ..
                }) => assert_eq!((culprit, reporter), (rank, 1 - rank)),
                Err(other) => panic!("{other}"),
            }
        }
        assert!(seen > 0, "none of both has looked");
    }
}

/// Each rank waits for a message that nobody sends, so only the ranks' reports of their waits show the mismatch.
#[test]
fn ranks_that_wait_for_each_other_in_different_operations_are_told_what_both_have_called() {
    for ranks in [2, 4] {
        let errors = each_communicator(ranks, Wire::Tcp, by_trees(), move |mut comm| {
            comm.reduce(&mut [1.0_f32], ReduceOp::Sum, 0, long()).unwrap();
            let next = (comm.rank() + 1) % comm.size();
            comm.broadcast(&mut [1.0_f32; 30_000], next, long()).unwrap_err()
        });
        let mut seen = 0;
        for error in &errors {
            match error {
                CollectiveError::Mismatch { ours, theirs, .. } => {
                    assert_eq!((ours.sequence, theirs.sequence), (1, 1), "{error}");
                    assert_ne!(ours.of, theirs.of, "{error}");
                    seen += 1;
                }
                error => assert!(is_told(error), "{error}"),
            }
        }
        assert!(seen > 0, "{errors:?}");
    }
}

/// Whether another rank has told of a mismatch.
fn is_told(error: &CollectiveError) -> bool {
    matches!(error, CollectiveError::Aborted { reason: AbortReason::Mismatch, .. })
}

fn is_found(error: &CollectiveError) -> bool {
    matches!(error, CollectiveError::Mismatch { .. })
}

/// Rank 0 waits for rank 1, which has sent to rank 2 alone, and has ended. Rank 2 has called nothing. So only rank 1
/// can find the mismatch, and only by the report of rank 0's wait.
#[test]
fn a_rank_that_is_waited_for_in_what_it_has_not_called_ends_the_wait_between_operations() {
    let errors = each_communicator(3, Wire::Tcp, by_trees(), |mut comm| {
        comm.reduce(&mut [1.0_f32], ReduceOp::Sum, 0, long()).unwrap();
        match comm.rank() {
            0 => return comm.broadcast(&mut [1.0_f32], 1, long()).unwrap_err(),
            1 => comm.reduce(&mut [1.0_f32], ReduceOp::Sum, 2, long()).unwrap(),
            _ => {}
        }
        comm.failure(long()).unwrap()
    });
    assert!(is_told(&errors[0]) && is_found(&errors[1]) && is_told(&errors[2]), "{errors:?}");
}

/// Both ranks have given, and call nothing more: a message that nobody reads shows the mismatch.
#[test]
fn ranks_that_gave_in_different_operations_hear_of_it_between_operations() {
    let errors = each_communicator(2, Wire::Tcp, by_trees(), |mut comm| {
        comm.reduce(&mut [1.0_f32], ReduceOp::Sum, 0, long()).unwrap();
        let other = 1 - comm.rank();
        let given = comm.reduce(&mut [1.0_f32], ReduceOp::Sum, other, long()).err();
        given.or_else(|| comm.failure(long())).unwrap()
    });
    assert!(errors.iter().all(|error| is_found(error) || is_told(error)), "{errors:?}");
    assert!(errors.iter().any(is_found), "{errors:?}");
}

/// The root has ended its broadcast, and calls nothing more, when the other rank finds the mismatch. The root's next
/// call reports it, or its close.
#[test]
fn a_root_that_had_called_something_else_hears_of_it_at_its_next_call_and_at_its_close() {
    for calls in [true, false] {
        let [given, ended] = [AtomicU32::new(0), AtomicU32::new(0)];
        let errors = each_communicator(2, Wire::Tcp, by_trees(), move |mut comm| {
            comm.reduce(&mut [1.0_f32], ReduceOp::Sum, 0, long()).unwrap();
            if comm.rank() == 1 {
                until(&given, 1);
                let error = comm.all_reduce(&mut [1.0_f32], ReduceOp::Sum, long()).unwrap_err();
                ended.fetch_add(1, Ordering::Release);
                return error;
            }
            comm.broadcast(&mut [1.0_f32], 0, long()).unwrap();
            given.fetch_add(1, Ordering::Release);
            until(&ended, 1);
            comm.failure(long()).unwrap();
            if calls { comm.barrier(long()).unwrap_err() } else { comm.close(long()).unwrap_err() }
        });
        assert!(errors.iter().all(|error| is_found(error) || is_told(error)), "{errors:?}");
        assert!(errors.iter().any(is_found), "{errors:?}");
    }
}

/// Rank 0 gives over links, and rank 1 in the windows of the host: neither reads what the other has sent.
#[test]
fn ranks_that_gave_over_links_and_in_windows_hear_of_it_when_they_leave() {
    for _ in 0..20 {
        let left = each_communicator(2, Wire::Mapped, by_trees(), |mut comm| {
            comm.scatter(&mut [1.0_f32; 60_000], 0, long()).unwrap();
            let given = match comm.rank() {
                0 => comm.scatter(&mut [1.0_f32; 60_000], 0, long()),
                _ => comm.broadcast(&mut [1.0_f32], 1, long()),
            };
            given.and_then(|()| comm.close(long()))
        });
        let errors: Vec<_> = left.into_iter().filter_map(Result::err).collect();
        assert!(errors.iter().all(|error| is_found(error) || is_told(error)), "{errors:?}");
        assert!(!errors.is_empty(), "none of both has looked");
    }
}
