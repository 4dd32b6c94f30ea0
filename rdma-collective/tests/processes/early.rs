//! A rank that only gives is done before the others have come: what it has left is theirs though it has gone, or it is
//! named.

use std::thread::sleep;
use std::time::Duration;

use rdma_collective::bootstrap::LocalRanks;
use rdma_collective::bootstrap::SpawnError;
use rdma_collective::collective::CollectiveError;
use rdma_collective::collective::Communicator;
use rustix::process::{Signal, getpid, kill_process};

use crate::common::long;
use crate::rank_process;

/// The number of operations in which rank 0 gives without waiting for the others.
const GIVEN: u32 = 5;

/// Rank 0 gives and goes, before the others come.
pub(super) fn give_and_go(mut comm: Communicator, killed: bool) {
    let rank = comm.rank();
    if rank != 0 {
        sleep(Duration::from_millis(300));
    }
    for round in 1..=GIVEN {
        let mut data = [if rank == 0 { round } else { 0 }; 20];
        match comm.broadcast(&mut data, 0, long()) {
            Ok(()) => assert_eq!(data, [round; 20]),
            Err(error) if killed && rank != 0 => return assert_named(&error),
            Err(error) => panic!("rank {rank} in round {round}: {error}"),
        }
    }
    if rank == 0 {
        if killed {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        return comm.close(long()).unwrap();
    }
    assert_named(&comm.barrier(long()).unwrap_err());
}

fn assert_named(error: &CollectiveError) {
    assert!(
        matches!(
            error,
            CollectiveError::PeerFailed { rank: 0, .. } | CollectiveError::Aborted { culprit: 0, .. }
        ),
        "{error}"
    );
}

#[test]
fn what_a_process_has_given_is_there_when_it_has_left() {
    for _ in 0..3 {
        LocalRanks::spawn(3, |_| rank_process("give and leave", "auto")).unwrap().wait(long()).unwrap();
    }
}

#[test]
fn what_a_process_has_given_is_there_when_it_was_killed_or_it_is_named() {
    for _ in 0..3 {
        let ranks = LocalRanks::spawn(3, |_| rank_process("give and be killed", "auto")).unwrap();
        let error = ranks.wait(long()).unwrap_err();
        let only = matches!(&error, SpawnError::Failed { rank: 0, killed, .. } if killed.is_empty());
        assert!(only && error.to_string().contains("signal: 9"), "{error:?}");
    }
}
