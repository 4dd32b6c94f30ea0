//! The ring under every interleaving, against what it must compute, send and cost.

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

fn programs(ranks: u32, count: usize, data_type: DataType, staging: Staging) -> Vec<Ring> {
    (0..ranks)
        .map(|rank| Ring::all_reduce(Operation { rank, ranks, count, data_type, staging }).unwrap())
        .collect()
}

/// The rank from which on the element of an index is reduced: the one that puts it from its input.
fn first(programs: Vec<Ring>, count: usize, data_type: DataType) -> impl Fn(usize) -> usize {
    let mut first = vec![0; count];
    for (rank, program) in programs.into_iter().enumerate() {
        for step in program {
            for span in step.put_from_input() {
                first[span.offset / data_type.size()..span.range().end / data_type.size()].fill(rank);
            }
        }
    }
    move |index| first[index]
}

/// Makes the world of an all-reduce, does something with it, and checks what every rank has.
fn with_world(
    ranks: u32,
    count: usize,
    staging: Staging,
    in_place: bool,
    run: impl FnOnce(&mut World<Ring>),
) {
    let data_type = if count.is_multiple_of(2) { DataType::F32 } else { DataType::F16 };
    let programs = programs(ranks, count, data_type, staging);
    let first = first(programs.clone(), count, data_type);
    let mut world = World::new(programs, 1, count, data_type.size(), staging.slots, in_place);
    run(&mut world);
    world.assert_reduced(first);
}

#[test]
fn every_element_is_reduced_exactly_once_for_1_to_16_ranks() {
    let mut sample = Sample::one_of(5);
    for ranks in 1..=16_u32 {
        for staging in STAGINGS {
            let n = ranks as usize;
            let chunk = staging.slot_bytes / 4;
            let round = n * chunk * usize::from(staging.slots / 2).max(1);
            let edges =
                [chunk, n * chunk, round, 2 * round].into_iter().flat_map(|edge| [edge - 1, edge, edge + 1]);
            for count in [0, 1, n - 1, n, n + 1].into_iter().chain(edges) {
                for in_place in [false, true] {
                    if sample.leaves_out() {
                        continue;
                    }
                    let seed = (count as u64 + 1) << 32 | u64::from(ranks) | 1 << 20;
                    with_world(ranks, count, staging, in_place, |world| run(world, random(seed)));
                }
            }
        }
    }
}

#[test]
fn adversaries_find_no_deadlock_and_no_overwritten_slot() {
    for ranks in [2, 3, 5, 8] {
        for staging in STAGINGS {
            for count in [ranks as usize - 1, 61, 128] {
                for choose in ADVERSARIES {
                    with_world(ranks, count, staging, true, |world| run(world, choose));
                }
            }
        }
    }
}

#[test]
fn every_interleaving_of_small_rings_ends_right() {
    let tight = Staging { slots: 1, slot_bytes: 4, chunk_bytes_min: 1 };
    let paired = Staging { slots: 2, slot_bytes: 4, chunk_bytes_min: 1 };
    let deep = Staging { slots: 4, slot_bytes: 4, chunk_bytes_min: 1 };
    let mut sample = Sample::one_of(5);
    let mut states = 0;
    for (ranks, count, staging) in
        [(2, 2, tight), (2, 6, tight), (2, 6, paired), (2, 6, deep), (3, 6, tight), (3, 3, paired)]
    {
        for in_place in [false, true] {
            if sample.leaves_out() {
                continue;
            }
            let programs = programs(ranks, count, DataType::F32, staging);
            let first = first(programs.clone(), count, DataType::F32);
            let world = World::new(programs, 1, count, 4, staging.slots, in_place);
            states += explore(world, |end| end.assert_reduced(&first));
        }
    }
    assert!(states > 5000, "only {states} states explored");
}

#[test]
fn a_rank_sends_what_theory_says_in_the_steps_that_theory_says() {
    for ranks in 2..=16_u32 {
        for staging in STAGINGS {
            let n = ranks as usize;
            // Divides evenly into segments and chunks.
            let chunks = usize::from(staging.slots / 2).max(1);
            let count = n * chunks * (staging.slot_bytes / 4) * 3;
            for program in programs(ranks, count, DataType::F32, staging) {
                let (mut puts, mut bytes, mut reduced, mut copied, mut credits) = (0, 0, 0, 0, 0);
                for step in program {
                    match step {
                        Step::Put { source, .. } => (puts, bytes) = (puts + 1, bytes + source.len()),
                        Step::ReduceFrom { target, .. } => reduced += target.len(),
                        Step::CopyFrom { target, .. } => copied += target.len(),
                        Step::Signal { consumed, .. } => credits = consumed,
                        _ => {}
                    }
                }
                assert_eq!(puts, 2 * (n - 1) * chunks * 3);
                assert_eq!(bytes, 2 * (n - 1) * count * 4 / n);
                assert_eq!((reduced, copied), (bytes / 2, bytes / 2));
                assert_eq!(credits, puts as u64, "all credits go back");
            }
        }
    }
}

#[test]
fn a_count_that_does_not_divide_costs_one_element_a_step_at_most() {
    for ranks in 2..=16_u32 {
        for count in [1, 7, 1000, 4099] {
            for program in programs(ranks, count, DataType::F16, STAGINGS[4]) {
                let steps = 2 * (ranks as usize - 1);
                let rounds = program.chunking.rounds;
                let sent: usize = program
                    .filter_map(
                        |step| if let Step::Put { source, .. } = step { Some(source.len()) } else { None },
                    )
                    .sum();
                let theory = steps * count * 2 / ranks as usize;
                assert!(sent.abs_diff(theory) <= steps * rounds * 2, "{sent} for {theory}");
            }
        }
    }
}

#[test]
fn a_count_of_zero_has_no_steps_and_a_lone_rank_copies() {
    for ranks in 1..=16 {
        for program in programs(ranks, 0, DataType::F32, Staging::default()) {
            assert_eq!(program.count(), 0);
        }
    }
    let alone = programs(1, 5, DataType::F16, Staging::default()).remove(0);
    assert_eq!(alone.collect::<Vec<_>>(), [Step::copy(Span { offset: 0, len: 10 })]);
}

#[test]
fn ends_after_the_last_step_and_stays_ended() {
    let mut ring = programs(3, 100, DataType::F32, STAGINGS[3]).remove(1);
    assert_eq!((ring.operation.previous_rank(), ring.operation.next_rank()), (0, 2));
    while ring.next().is_some() {}
    assert_eq!(ring.next(), None);
}

#[test]
fn bad_operations_are_refused() {
    let good =
        Operation { rank: 0, ranks: 2, count: 8, data_type: DataType::F32, staging: Staging::default() };
    let refused = |operation| Ring::all_reduce(operation).unwrap_err();
    assert_eq!(refused(Operation { rank: 2, ..good }), ScheduleError::RankOutOfRange { rank: 2, ranks: 2 });
    assert_eq!(refused(Operation { ranks: 0, ..good }), ScheduleError::RankOutOfRange { rank: 0, ranks: 0 });
    assert_eq!(
        refused(Operation { count: usize::MAX, ..good }),
        ScheduleError::Count(ReduceError::TooManyElements { count: usize::MAX, data_type: DataType::F32 })
    );
    let staging = Staging { slots: 0, ..Staging::default() };
    insta::assert_snapshot!(
        [refused(Operation { rank: 2, ..good }), refused(Operation { staging, ..good })]
            .map(|error| error.to_string())
            .join("\n"),
        @r"
        rank 2 is not one of 2; ranks count from 0
        staging of 0 slots of 262144 bytes cannot carry elements of 4 bytes; give it at least one slot of one element
        "
    );
}

#[test]
fn the_largest_operation_starts_without_overflow() {
    let (rank, ranks) = (u32::MAX - 1, u32::MAX);
    for staging in [Staging::default(), Staging { slots: u16::MAX, slot_bytes: 4, chunk_bytes_min: 1 }] {
        let count = isize::MAX as usize / 4;
        let ring =
            Ring::all_reduce(Operation { rank, ranks, count, data_type: DataType::F32, staging }).unwrap();
        assert!(matches!(
            ring.clone().next(),
            Some(Step::Put { to: 0, .. }) | Some(Step::Put { message: 0, .. })
        ));
        let end = ring.end();
        let mut late = Ring { next: end - 1, ..ring };
        assert!(late.by_ref().count() > 0);
    }
}

/// Time and bus bandwidth at 100 Gb/s and 5 us, with arithmetic at 20 GB/s: a change of speed shows here.
#[test]
fn modelled_time() {
    let costs = time::Costs { wire: Wire::FAST, arithmetic: 50 };
    let staging = Staging::default();
    let mut table = String::from("ranks       bytes         us  bus GB/s\n");
    for ranks in [2, 4, 8, 16] {
        for count in [2, 1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 25] {
            let nanos = time::nanos(programs(ranks, count, DataType::F32, staging), staging.slots, costs);
            let bytes = count * 4;
            let bus = 2.0 * f64::from(ranks - 1) / f64::from(ranks) * bytes as f64 / nanos;
            writeln!(table, "{ranks:5} {bytes:11} {:10.1} {bus:9.2}", nanos / 1000.0).unwrap();
        }
    }
    insta::assert_snapshot!(table, @r"
    ranks       bytes         us  bus GB/s
        2           8       10.0      0.00
        2        4096       10.5      0.39
        2       65536       15.6      4.21
        2     1048576       95.4     10.99
        2    16777216     1360.3     12.33
        2   134217728    10755.5     12.48
        4           8       30.0      0.00
        4        4096       30.8      0.20
        4       65536       42.8      2.30
        4     1048576      134.1     11.73
        4    16777216     2031.4     12.39
        4   134217728    16124.2     12.49
        8           8       70.0      0.00
        8        4096       70.9      0.10
        8       65536       84.9      1.35
        8     1048576      153.4     11.96
        8    16777216     2366.9     12.40
        8   134217728    18808.6     12.49
       16           8      150.0      0.00
       16        4096      151.0      0.05
       16       65536      166.0      0.74
       16     1048576      217.8      9.03
       16    16777216     2534.7     12.41
       16   134217728    20150.8     12.49
    ");
}

proptest! {
    #[test]
    fn rings_that_follow_each_other_share_their_slots_under_any_interleaving(
        ranks in 1_u32..=16,
        count in 0_usize..400,
        slots in 1_u16..10,
        slot_bytes in 4_usize..120,
        chunk_bytes_min in 0_usize..40,
        in_place: bool,
        seed in 1_u64..,
    ) {
        let staging = Staging { slots, slot_bytes, chunk_bytes_min };
        let programs = programs(ranks, count, DataType::F32, staging);
        let first = first(programs.clone(), count, DataType::F32);
        let mut world = World::new(programs, 3, count, 4, staging.slots, in_place);
        run(&mut world, random(seed));
        world.assert_reduced(first);
    }
}
