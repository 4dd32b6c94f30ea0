//! Splitting a communicator.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{WIRES, long};
use crate::world::each_communicator;
use proptest::prelude::*;
use rdma_collective::collective::CommunicatorError;
use rdma_collective::collective::ReduceOp;
use rdma_collective::collective::{AbortReason, CollectiveError};
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_core::{Deadline, Wire};

/// The color and key that each rank asks for, by rank.
type Wishes = Vec<(Option<u32>, i32)>;

/// The ranks of the communicator that `rank` must get, in order; computed without the library.
fn expected(wishes: &Wishes, rank: u32) -> Option<Vec<u32>> {
    let color = wishes[rank as usize].0?;
    let mut ranks: Vec<u32> =
        (0..wishes.len() as u32).filter(|other| wishes[*other as usize].0 == Some(color)).collect();
    ranks.sort_by_key(|other| wishes[*other as usize].1);
    Some(ranks)
}

/// Asserts that `made` consists of `ranks` of its parent, in which this rank is `own`, and that it works.
fn assert_is_of(made: &mut Communicator, ranks: &[u32], own: u32) {
    assert_eq!(made.size() as usize, ranks.len());
    let there: Vec<_> = (0..made.size()).map(|rank| made.rank_in_parent(rank).unwrap()).collect();
    assert_eq!(there, ranks);
    assert_eq!(there[made.rank() as usize], own);
    assert_eq!(made.rank_in_parent(made.size()), None);
    for count in [1, 100_000] {
        let mut data = vec![1_u64 << own; count];
        made.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
        let all = ranks.iter().map(|rank| 1 << rank).sum::<u64>();
        assert!(data.iter().all(|sum| *sum == all), "{count} of {ranks:?}");
    }
    let mut all = vec![0; ranks.len()];
    made.all_gather_into(&[own], &mut all, long()).unwrap();
    assert_eq!(all, ranks);
}

/// Splits, and looks at what comes of it, and at the parent.
fn split(mut comm: Communicator, wishes: &Wishes) {
    let own = comm.rank();
    let (color, key) = wishes[own as usize];
    let made = comm.split(color, key, long()).unwrap();
    let ranks = expected(wishes, own);
    assert_eq!(made.is_some(), ranks.is_some());
    if let Some((mut made, ranks)) = made.zip(ranks) {
        assert_is_of(&mut made, &ranks, own);
        made.close(long()).unwrap();
    }
    let mut data = [1_u32; 100];
    comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
    assert_eq!(data, [comm.size(); 100]);
    comm.close(long()).unwrap();
}

#[test]
fn ranks_of_a_color_are_a_communicator_in_the_order_of_their_keys() {
    for wire in WIRES {
        for ranks in [1, 2, 3, 5, 8] {
            // Three colors and none, from the last rank to the first.
            let wish = |rank: u32| ((rank % 4 != 3).then_some(7 * (rank % 4)), -(rank as i32));
            let wishes: Wishes = (0..ranks).map(wish).collect();
            each_communicator(ranks, wire, CommunicatorOptions::default(), move |comm| {
                split(comm, &wishes);
            });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_colors_and_keys_are_the_oracles(
        wire in prop::sample::select(&WIRES),
        wishes in prop::collection::vec((prop::option::of(0_u32..3), -2..3_i32), 1..9),
    ) {
        let ranks = wishes.len() as u32;
        each_communicator(ranks, wire, CommunicatorOptions::default(), move |comm| split(comm, &wishes));
    }
}

#[test]
fn halves_are_split_again_and_outlive_what_they_were_split_from() {
    for wire in WIRES {
        let options = CommunicatorOptions { reproducible: true, slots: 3, ..CommunicatorOptions::default() };
        each_communicator(8, wire, options, |mut comm| {
            let own = comm.rank();
            let mut half = comm.split(Some(own / 4), 0, long()).unwrap().unwrap();
            let mut other = comm.split(Some(own % 2), 0, long()).unwrap().unwrap();
            comm.close(long()).unwrap();
            let mut pair = half.split(Some(half.rank() / 2), -1, long()).unwrap().unwrap();
            assert_eq!(
                pair.options().name,
                format!("world/split0/color{}/split0/color{}", own / 4, own % 4 / 2)
            );
            assert!(pair.options().reproducible && pair.options().slots == 3);
            // Ranks of the pair are mapped to ranks of the half.
            let first = own / 4 * 4;
            assert_eq!(pair.rank_in_parent(0), Some(own % 4 / 2 * 2));
            // Operations of all three communicators at once, and one after the other.
            let tensor = |comm: &Communicator| {
                let mut tensor = comm.alloc::<u32>(20_000).unwrap();
                tensor.fill(own);
                tensor
            };
            let pending = [&mut half, &mut other, &mut pair]
                .map(|comm| comm.start_all_reduce(tensor(comm), ReduceOp::Sum, long()).unwrap());
            let pair_first = own / 2 * 2;
            let sums = [4 * first + 6, 4 * (own % 2) + 12, 2 * pair_first + 1];
            for (pending, sum) in pending.into_iter().zip(sums) {
                assert!(pending.wait(long()).unwrap().iter().all(|element| *element == sum), "rank {own}");
            }
            half.close(long()).unwrap();
            assert_is_of(&mut other, &[0, 2, 4, 6].map(|rank| rank + own % 2), own);
            let mut data = [1_u8];
            pair.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
            assert_eq!(data, [2]);
            pair.close(long()).unwrap();
            other.close(long()).unwrap();
        });
    }
}

#[test]
fn it_is_done_in_its_turn_and_another_order_is_an_error_that_quotes_both() {
    each_communicator(3, Wire::Local, CommunicatorOptions::default(), |mut comm| {
        let tensor = comm.alloc::<u32>(1_000_000).unwrap();
        let pending = comm.start_all_reduce(tensor, ReduceOp::Sum, long()).unwrap();
        assert!(comm.split(None, 0, long()).unwrap().is_none());
        pending.wait(long()).unwrap();
        let error = match comm.rank() {
            1 => comm.barrier(long()).unwrap_err(),
            _ => match comm.split(Some(0), 0, long()).unwrap_err() {
                CommunicatorError::Parent(error) => error,
                other => panic!("{other}"),
            },
        };
        match &error {
            CollectiveError::Mismatch { ours, theirs, .. } => {
                let mut both = [ours.collective, theirs.collective];
                both.sort_unstable();
                assert_eq!(both, ["barrier", "split"], "{error}");
            }
            CollectiveError::Aborted { culprit, reporter, reason: AbortReason::Mismatch, .. } => {
                assert!(*culprit == 1 || *reporter == 1, "{error}");
            }
            other => panic!("{other}"),
        }
        let again = comm.split(Some(0), 0, long()).unwrap_err();
        assert!(matches!(again, CommunicatorError::Parent(CollectiveError::Ended { .. })), "{again}");
    });
}

#[test]
fn a_rank_that_does_not_come_is_named_at_the_deadline() {
    let named = AtomicU32::new(0);
    each_communicator(3, Wire::Local, CommunicatorOptions::default(), move |mut comm| {
        comm.barrier(long()).unwrap();
        if comm.rank() != 1 {
            let soon = Deadline::after(Duration::from_secs(2));
            match comm.split(Some(0), 0, soon).unwrap_err() {
                CommunicatorError::Parent(
                    CollectiveError::DeadlineExceeded { rank: 1, .. }
                    | CollectiveError::Aborted { culprit: 1, reason: AbortReason::DeadlineExceeded, .. },
                ) => {}
                other => panic!("{other}"),
            }
            named.fetch_add(1, Ordering::Relaxed);
        }
        let started = Instant::now();
        while named.load(Ordering::Relaxed) < 2 && started.elapsed() < Duration::from_secs(30) {
            thread::sleep(Duration::from_millis(5));
        }
    });
}
