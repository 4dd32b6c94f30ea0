//! The chain under every interleaving, against what it must compute, send and cost.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::collective::DataType;
use crate::collective::ReduceError;
use crate::collective::schedule::Staging;
use crate::collective::schedule::tests::simulate::choose::{ADVERSARIES, STAGINGS, explore, random, run};
use crate::collective::schedule::tests::simulate::{World, time};
use crate::tests::netsim::Wire;
use crate::tests::soak::Sample;

fn programs(ranks: u32, count: usize, data_type: DataType, staging: Staging) -> Vec<Chain> {
    (0..ranks)
        .map(|rank| Chain::all_reduce(Operation { rank, ranks, count, data_type, staging }).unwrap())
        .collect()
}

fn world(ranks: u32, count: usize, staging: Staging, in_place: bool) -> World<Chain> {
    let data_type = if count.is_multiple_of(2) { DataType::F32 } else { DataType::F16 };
    let programs = programs(ranks, count, data_type, staging);
    World::new(programs, 1, count, data_type.size(), staging.slots, in_place)
}

/// Every element is reduced from rank 0 on.
fn assert_reduced(world: &World<Chain>) {
    world.assert_reduced(|_| 0);
}

#[test]
fn every_element_is_reduced_in_the_order_of_ranks_for_1_to_16_ranks() {
    let mut sample = Sample::one_of(5);
    for ranks in 1..=16_u32 {
        for staging in STAGINGS {
            let n = ranks as usize;
            let chunk = staging.slot_bytes / 4;
            let edges =
                [chunk, n * chunk, 4 * n * chunk].into_iter().flat_map(|edge| [edge - 1, edge, edge + 1]);
            for count in [0, 1, n - 1, n, n + 1].into_iter().chain(edges) {
                for in_place in [false, true] {
                    if sample.leaves_out() {
                        continue;
                    }
                    let mut world = world(ranks, count, staging, in_place);
                    run(&mut world, random((count as u64 + 1) << 32 | u64::from(ranks) | 1 << 20));
                    assert_reduced(&world);
                }
            }
        }
    }
}

#[test]
fn adversaries_find_no_deadlock_and_no_overwritten_slot() {
    for ranks in [2, 3, 5, 8, 16] {
        for slots in [1, 2, 3, 4, 5, 8, 17] {
            let staging = Staging { slots, slot_bytes: 4, chunk_bytes_min: 1 };
            for count in [7, 61] {
                for choose in ADVERSARIES {
                    let mut world = world(ranks, count, staging, true);
                    run(&mut world, choose);
                    assert_reduced(&world);
                }
            }
        }
    }
}

#[test]
fn every_interleaving_of_small_chains_ends_right() {
    let staging = |slots| Staging { slots, slot_bytes: 4, chunk_bytes_min: 1 };
    let mut sample = Sample::one_of(3);
    let mut states = 0;
    for (ranks, count, slots) in
        [(2, 2, 1), (2, 6, 1), (2, 5, 2), (2, 5, 4), (3, 4, 1), (3, 4, 2), (3, 3, 5), (4, 2, 1), (4, 2, 2)]
    {
        for in_place in [false, true] {
            if sample.leaves_out() {
                continue;
            }
            let programs = programs(ranks, count, DataType::F32, staging(slots));
            let world = World::new(programs, 1, count, 4, slots, in_place);
            states += explore(world, assert_reduced);
        }
    }
    assert!(states > 10_000, "only {states} states explored");
}

#[test]
fn each_rank_sends_the_buffer_twice_but_for_those_at_the_end() {
    for ranks in 2..=16_u32 {
        for staging in STAGINGS {
            let bytes = 4096;
            for (rank, program) in (0..).zip(programs(ranks, bytes / 4, DataType::F32, staging)) {
                let (mut sent, mut puts, mut reduced, mut copied) = (0, 0, 0, 0);
                let (mut received, mut credits) = (0, 0);
                let all = program.clone().filter(|step| matches!(step, Step::Put { .. })).count();
                let mut program = program;
                while let Some(step) = program.next() {
                    match step {
                        Step::Put { source, .. } => {
                            (puts, sent) = (puts + 1, sent + source.len());
                            assert_eq!(program.has_put_all(), puts == all);
                        }
                        Step::ReduceFrom { target, last, .. } => {
                            assert_eq!(last, rank + 1 == ranks);
                            reduced += target.len();
                        }
                        Step::CopyFrom { target, .. } => copied += target.len(),
                        Step::WaitCount { .. } => received += 1,
                        Step::Signal { consumed, .. } => credits = consumed,
                        Step::WaitPut { .. } => panic!("a chain is one strand"),
                        Step::Copy { .. } => panic!("only who is alone copies"),
                    }
                }
                let (first, last) = (rank == 0, rank + 1 == ranks);
                assert_eq!(reduced, if first { 0 } else { bytes });
                assert_eq!(copied, if last { 0 } else { bytes });
                assert_eq!(sent, if last || rank + 2 == ranks { bytes } else { 2 * bytes });
                assert!(puts > 0);
                assert_eq!(credits, received, "all credits go back");
            }
        }
    }
}

#[test]
fn a_count_of_zero_has_no_steps_and_a_lone_rank_copies() {
    for ranks in 1..=16 {
        for program in programs(ranks, 0, DataType::F64, Staging::default()) {
            assert_eq!(program.count(), 0);
        }
    }
    let mut alone = programs(1, 5, DataType::I64, Staging::default()).remove(0);
    assert_eq!(alone.next(), Some(Step::copy(Span { offset: 0, len: 40 })));
    assert_eq!((alone.next(), alone.next()), (None, None));
}

#[test]
fn bad_operations_are_refused() {
    let good =
        Operation { rank: 0, ranks: 2, count: 8, data_type: DataType::F32, staging: Staging::default() };
    let refused = |operation| Chain::all_reduce(operation).unwrap_err();
    assert_eq!(refused(Operation { rank: 2, ..good }), ScheduleError::RankOutOfRange { rank: 2, ranks: 2 });
    assert_eq!(
        refused(Operation { count: usize::MAX, ..good }),
        ScheduleError::Count(ReduceError::TooManyElements { count: usize::MAX, data_type: DataType::F32 })
    );
    let staging = Staging { slot_bytes: 3, ..Staging::default() };
    assert_eq!(
        refused(Operation { staging, ..good }),
        ScheduleError::StagingTooSmall { slots: 8, slot_bytes: 3, element_bytes: 4 }
    );
}

#[test]
fn the_largest_operation_starts_and_ends_without_overflow() {
    let ranks = u32::MAX;
    for staging in [Staging::default(), Staging { slots: u16::MAX, slot_bytes: 1, chunk_bytes_min: 0 }] {
        for rank in [0, 1, ranks - 2, ranks - 1] {
            let count = isize::MAX as usize;
            let chain = Chain::all_reduce(Operation { rank, ranks, count, data_type: DataType::I8, staging })
                .unwrap();
            assert!(chain.clone().next().is_some());
            let late = Chain { next: chain.end() - 1, ..chain };
            assert!(late.count() > 0);
        }
    }
}

/// Time and bus bandwidth at 100 Gb/s and 5 us, with arithmetic at 20 GB/s: a change of speed shows here.
#[test]
fn modelled_time() {
    let costs = time::Costs { wire: Wire::FAST, arithmetic: 50 };
    let staging = Staging::default();
    let mut table = String::from("ranks       bytes         us  bus GB/s\n");
    for ranks in [2, 4, 8, 16] {
        for count in [2, 1 << 14, 1 << 18, 1 << 22, 1 << 25] {
            let nanos = time::nanos(programs(ranks, count, DataType::F32, staging), staging.slots, costs);
            let bytes = count * 4;
            let bus = 2.0 * f64::from(ranks - 1) / f64::from(ranks) * bytes as f64 / nanos;
            writeln!(table, "{ranks:5} {bytes:11} {:10.1} {bus:9.2}", nanos / 1000.0).unwrap();
        }
    }
    insta::assert_snapshot!(table, @r"
    ranks       bytes         us  bus GB/s
        2           8       10.0      0.00
        2       65536       18.2      3.60
        2     1048576      117.5      8.93
        2    16777216     1399.4     11.99
        2   134217728    10794.6     12.43
        4           8       30.0      0.00
        4       65536       46.7      2.10
        4     1048576      189.6      8.30
        4    16777216     2741.5      9.18
        4   134217728    21532.0      9.35
        8           8       70.0      0.00
        8       65536      103.8      1.11
        8     1048576      237.8      7.72
        8    16777216     2897.9     10.13
        8   134217728    21688.3     10.83
       16           8      150.0      0.00
       16       65536      217.8      0.56
       16     1048576      374.9      5.24
       16    16777216     3492.9      9.01
       16   134217728    22660.9     11.11
    ");
}

proptest! {
    #[test]
    fn chains_that_follow_each_other_share_their_slots_under_any_interleaving(
        ranks in 1_u32..=16,
        count in 0_usize..400,
        slots in 1_u16..20,
        slot_bytes in 4_usize..120,
        chunk_bytes_min in 0_usize..40,
        in_place: bool,
        seed in 1_u64..,
    ) {
        let staging = Staging { slots, slot_bytes, chunk_bytes_min };
        let programs = programs(ranks, count, DataType::F32, staging);
        let mut world = World::new(programs, 3, count, 4, staging.slots, in_place);
        run(&mut world, random(seed));
        assert_reduced(&world);
    }
}
