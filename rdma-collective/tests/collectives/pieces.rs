//! Operations that are longer than a message, between ranks of one host: cut into pieces that lie in the windows of all.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::long;
use crate::world::each_communicator;
use proptest::prelude::*;
use rdma_collective::collective::ReduceOp;
use rdma_collective::comm::{Communicator, CommunicatorOptions};
use rdma_collective::error::{AbortReason, CollectiveError};
use rdma_core::{Deadline, Wire};

fn element(rank: u32, index: usize) -> u64 {
    (index as u64 + 1000 * u64::from(rank)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn input(rank: u32, count: usize) -> Vec<u64> {
    (0..count).map(|index| element(rank, index)).collect()
}

fn sums(ranks: u32, count: usize) -> Vec<u64> {
    let sum = |index| (0..ranks).fold(0_u64, |sum, rank| sum.wrapping_add(element(rank, index)));
    (0..count).map(sum).collect()
}

/// Each of the collectives once, of so many elements a rank or a part.
fn all_right(comm: &mut Communicator, count: usize, root: u32) -> bool {
    let (rank, ranks) = (comm.rank(), comm.size());
    let (own, sum) = (input(rank, count), sums(ranks, count));
    let part = rank as usize * count..(rank as usize + 1) * count;
    let mut right = true;

    let mut data = own.clone();
    comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
    right &= data == sum;
    let mut output = vec![0; count];
    comm.all_reduce_into(&own, &mut output, ReduceOp::Sum, long()).unwrap();
    right &= output == sum;

    let mut all = vec![0; ranks as usize * count];
    comm.all_gather_into(&own, &mut all, long()).unwrap();
    right &= (0..ranks).flat_map(|rank| input(rank, count)).eq(all.iter().copied());

    let whole = input(rank, ranks as usize * count);
    let expected = &sums(ranks, ranks as usize * count)[part.clone()];
    comm.reduce_scatter_into(&whole, &mut output, ReduceOp::Sum, long()).unwrap();
    right &= output == expected;
    let mut whole = whole;
    comm.reduce_scatter(&mut whole, ReduceOp::Sum, long()).unwrap();
    right &= &whole[part] == expected;

    let mut data = if rank == root { own.clone() } else { vec![1; count] };
    comm.broadcast(&mut data, root, long()).unwrap();
    right &= data == input(root, count);

    let mut data = own.clone();
    comm.reduce(&mut data, ReduceOp::Sum, root, long()).unwrap();
    right &= data == if rank == root { sum } else { own };
    right
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_collective_is_right_for_1_to_8_ranks_and_any_size(
        ranks in 1_u32..9,
        root in 0_u32..8,
        counts in prop::collection::vec(
            prop_oneof![1000_usize..1100, 3000_usize..70_000, Just(4096), Just(8192), Just(32_768)], 1..4),
    ) {
        let right = each_communicator(ranks, Wire::Mapped, CommunicatorOptions::default(), move |mut comm| {
            let right = counts.iter().all(|count| all_right(&mut comm, *count, root % ranks));
            comm.close(long()).unwrap();
            right
        });
        prop_assert!(right.iter().all(|right| *right));
    }
}

#[test]
fn who_comes_late_and_goes_away_in_the_midst_is_waited_for() {
    each_communicator(3, Wire::Local, CommunicatorOptions::default(), |mut comm| {
        for round in 0..12 {
            if comm.rank() == round % 3 {
                sleep(Duration::from_millis(u64::from(round)));
            }
            assert!(all_right(&mut comm, 20_000, round % 3), "round {round}");
        }
        comm.close(long()).unwrap();
    });
}

#[test]
fn a_rank_that_does_not_come_is_named_by_all_and_in_time() {
    let ended = AtomicU32::new(0);
    let errors = each_communicator(4, Wire::Mapped, CommunicatorOptions::default(), move |mut comm| {
        let reduce = |comm: &mut Communicator, deadline| {
            comm.all_reduce(&mut vec![1.0_f32; 100_000], ReduceOp::Sum, deadline)
        };
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
        Some(error)
    });
    for error in errors.into_iter().flatten() {
        match error {
            CollectiveError::DeadlineExceeded { rank: 2, interrupted, .. } => {
                assert_eq!((interrupted.operation.sequence, interrupted.bytes_outstanding), (1, 600_000));
            }
            CollectiveError::Aborted { culprit: 2, reason: AbortReason::DeadlineExceeded, .. } => {}
            other => panic!("{other}"),
        }
    }
}

#[test]
fn an_abort_ends_one_that_is_under_way() {
    let errors = each_communicator(3, Wire::Mapped, CommunicatorOptions::default(), |mut comm| {
        if comm.rank() == 1 {
            let aborter = comm.aborter();
            std::thread::spawn(move || {
                sleep(Duration::from_millis(50));
                aborter.abort();
            });
        }
        let mut data = vec![1_u32; 1 << 20];
        loop {
            if let Err(error) = comm.all_reduce(&mut data, ReduceOp::Max, long()) {
                return error;
            }
        }
    });
    for error in errors {
        let CollectiveError::Aborted { culprit: 1, reason: AbortReason::Requested, .. } = error else {
            panic!("{error}");
        };
    }
}
