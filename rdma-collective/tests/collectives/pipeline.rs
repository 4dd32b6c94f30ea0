//! The pipelined protocol: operations longer than an eager message, with borrowed memory on some ranks, in pieces
//! through the windows of all.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::algorithms::MIXED;
use crate::common::long;
use crate::world::each_communicator;
use proptest::prelude::*;
use rdma_collective::collective::tuning::Tuning;
use rdma_collective::collective::{AbortReason, CollectiveError};
use rdma_collective::collective::{Communicator, CommunicatorOptions, WaitError};
use rdma_collective::collective::{ReduceOp, Tensor};
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

/// Runs each collective once with `count` elements a rank or a part.
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

/// As the test on slices, but in place on tensors, so that the rank owns the memory.
fn all_right_owned(comm: &mut Communicator, count: usize, root: u32) -> bool {
    let (rank, ranks) = (comm.rank(), comm.size());
    let sum = sums(ranks, count);
    let part = rank as usize * count..(rank as usize + 1) * count;
    let tensor = |comm: &Communicator, elements: &[u64]| {
        let mut tensor: Tensor<u64> = comm.alloc(elements.len()).unwrap();
        tensor.copy_from_slice(elements);
        tensor
    };
    let own = |comm: &Communicator| tensor(comm, &input(rank, count));
    let mut right = true;

    let data = own(comm);
    let data = comm.start_all_reduce(data, ReduceOp::Sum, long()).unwrap().wait(long()).unwrap();
    right &= *data == *sum;
    let (data, output) = (own(comm), comm.alloc(count).unwrap());
    let pending = comm.start_all_reduce_into(data, output, ReduceOp::Sum, long()).unwrap();
    right &= *pending.wait(long()).unwrap().1 == *sum;

    let (data, all) = (own(comm), comm.alloc(ranks as usize * count).unwrap());
    let (_, all) = comm.start_all_gather_into(data, all, long()).unwrap().wait(long()).unwrap();
    right &= (0..ranks).flat_map(|rank| input(rank, count)).eq(all.iter().copied());

    let expected = &sums(ranks, ranks as usize * count)[part.clone()];
    let whole = tensor(comm, &input(rank, ranks as usize * count));
    let output = comm.alloc(count).unwrap();
    let pending = comm.start_reduce_scatter_into(whole, output, ReduceOp::Sum, long()).unwrap();
    let (whole, output) = pending.wait(long()).unwrap();
    right &= *output == *expected;
    let whole = comm.start_reduce_scatter(whole, ReduceOp::Sum, long()).unwrap().wait(long()).unwrap();
    right &= whole[part] == *expected;

    let data = if rank == root { own(comm) } else { tensor(comm, &vec![1; count]) };
    let data = comm.start_broadcast(data, root, long()).unwrap().wait(long()).unwrap();
    right &= *data == *input(root, count);

    let data = own(comm);
    let data = comm.start_reduce(data, ReduceOp::Sum, root, long()).unwrap().wait(long()).unwrap();
    right && *data == *if rank == root { sum } else { input(rank, count) }
}

fn assert_owners_go_with_others(tuning: &Tuning) {
    for (ranks, owners) in [(2, 0b01), (2, 0b10), (3, 0b010), (4, 0b1011), (5, 0b00100)] {
        let options = CommunicatorOptions { tuning: tuning.clone(), ..CommunicatorOptions::default() };
        let right = each_communicator(ranks, Wire::Mapped, options, move |mut comm| {
            let owns = owners & (1 << comm.rank()) != 0;
            let mut right = true;
            for (count, root) in [(1100, 0), (30_000, 1), (1100, 1), (70_001, 0)] {
                right &= if owns {
                    all_right_owned(&mut comm, count, root)
                } else {
                    all_right(&mut comm, count, root)
                };
                // An operation on memory of the library runs between those on slices.
                right &= all_right_owned(&mut comm, count, root);
            }
            comm.close(long()).unwrap();
            right
        });
        assert!(right.iter().all(|right| *right), "{ranks} ranks, owners {owners:b}: {right:?}");
    }
}

#[test]
fn ranks_that_own_their_memory_go_with_those_that_do_not() {
    assert_owners_go_with_others(&Tuning::default());
    assert_owners_go_with_others(&MIXED.parse().unwrap());
}

#[test]
fn ranks_that_differ_are_named_whoever_owns_its_memory() {
    // Whatever the odd one does: more, much more, what is one message, or less.
    for (odd, counts) in [(0, [5000, 5001]), (1, [5000, 70_000]), (0, [5000, 3]), (1, [70_000, 5000])] {
        for owner in 0..2 {
            let errors =
                each_communicator(2, Wire::Mapped, CommunicatorOptions::default(), move |mut comm| {
                    let count = counts[usize::from(comm.rank() == odd)];
                    if comm.rank() == owner {
                        let data = comm.alloc::<u64>(count).unwrap();
                        match comm.start_all_reduce(data, ReduceOp::Sum, long()).unwrap().wait(long()) {
                            Err(WaitError::Failed(error)) => error,
                            other => panic!("{other:?}"),
                        }
                    } else {
                        comm.all_reduce(&mut vec![1_u64; count], ReduceOp::Sum, long()).unwrap_err()
                    }
                });
            let named = |error: &CollectiveError| match error {
                CollectiveError::Mismatch { ours, theirs, .. } => ours.count != theirs.count,
                CollectiveError::Aborted { reason: AbortReason::Mismatch, .. } => true,
                _ => false,
            };
            assert!(errors.iter().all(named), "{odd} {owner}: {errors:?}");
            assert!(errors.iter().any(|error| matches!(error, CollectiveError::Mismatch { .. })));
        }
    }
}

/// Sums and products of floats on each rank; their bits depend on the order.
fn floats(ranks: u32, wire: Wire, reproducible: bool) -> Vec<Vec<Vec<u32>>> {
    let algorithms = "^tree".parse().unwrap();
    let options = CommunicatorOptions { reproducible, algorithms, ..CommunicatorOptions::default() };
    each_communicator(ranks, wire, options, move |mut comm| {
        let (rank, ranks) = (comm.rank(), comm.size() as usize);
        let mut bits = Vec::new();
        // The last is more than the ring, which is cut alike, has under way at a time.
        let counts: &[usize] =
            if ranks == 2 { &[3000, 20_001, 60_001, 1_500_001] } else { &[3000, 20_001, 60_001] };
        for &count in counts {
            let own = |count| -> Vec<f32> {
                (0..count).map(|index| (element(rank, index) >> 40) as f32 / 65_521.0 + 0.5).collect()
            };
            let mut note = |data: &[f32]| bits.push(data.iter().map(|of| of.to_bits()).collect());
            let mut data = own(count);
            comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
            note(&data);
            comm.reduce_scatter_into(&own(count * ranks), &mut data, ReduceOp::Avg, long()).unwrap();
            note(&data);
            let mut data = own(count);
            comm.reduce(&mut data, ReduceOp::Sum, 1, long()).unwrap();
            note(&data);
        }
        comm.close(long()).unwrap();
        bits
    })
}

#[test]
fn bits_are_those_of_the_ring() {
    for ranks in 2..=5 {
        for reproducible in [false, true] {
            let [pieces, ring] = [Wire::Mapped, Wire::Tcp].map(|wire| floats(ranks, wire, reproducible));
            assert!(pieces == ring, "of {ranks}, reproducible: {reproducible}");
        }
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
        let mut data = vec![1_u32; 90_000];
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
