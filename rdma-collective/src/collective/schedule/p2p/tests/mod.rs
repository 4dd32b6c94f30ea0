//! Schedules in rounds under every interleaving, against what they must bring where, and send; and with faults
//! planted.

mod call;
mod faults;
mod transfer;
mod uneven;

use std::collections::BTreeSet;

use proptest::prelude::*;

use self::call::{Call, world};
use super::*;
use crate::collective::DataType;
use crate::collective::ReduceError;
use crate::collective::schedule::tests::simulate::choose::{ADVERSARIES, STAGINGS, explore, random, run};
use crate::collective::schedule::{Buffer, Extent, Span, Staging};
use crate::tests::soak::Sample;

#[test]
fn every_element_comes_where_it_must_exactly_once_for_1_to_16_ranks() {
    let mut sample = Sample::one_of(5);
    for ranks in 1..=16_u32 {
        for staging in STAGINGS {
            let chunk = staging.slot_bytes / 4;
            let ahead = chunk * usize::from(staging.slots / 2).max(1);
            let edges = [chunk + 1, ahead - 1, 2 * ahead + 1];
            for count in [0, 1, 2, ranks as usize - 1, ranks as usize].into_iter().chain(edges) {
                for call in Call::all(ranks) {
                    if sample.leaves_out() {
                        continue;
                    }
                    let in_place = count % 3 == ranks as usize % 3;
                    let mut world =
                        world(call, call.programs(ranks, count, staging), count, staging, in_place);
                    run(&mut world, random((count as u64 + 1) << 32 | u64::from(ranks) | 1 << 20));
                    call.assert_ended(&world, ranks, count);
                }
            }
        }
    }
}

#[test]
fn a_hierarchy_of_any_shape_reduces_every_element_exactly_once_for_1_to_16_ranks() {
    let mut sample = Sample::one_of(7);
    for ranks in 1..=16_u32 {
        for (hosts, dealt) in (1..=ranks).flat_map(|hosts| [(hosts, false), (hosts, true)]) {
            let call = Call::Hierarchy { hosts, dealt };
            for (slots, count) in [(1, 1), (1, 17), (2, 40), (5, 33), (8, 100)] {
                let staging = Staging { slots, slot_bytes: 8, chunk_bytes_min: 1 };
                for in_place in [true, false] {
                    if sample.leaves_out() {
                        continue;
                    }
                    let programs = call.programs(ranks, count, staging);
                    let mut world = world(call, programs, count, staging, in_place);
                    run(&mut world, random(u64::from(hosts) << 8 | 3));
                    call.assert_ended(&world, ranks, count);
                }
            }
        }
    }
}

#[test]
fn adversaries_find_no_deadlock_and_no_overwritten_slot() {
    for (ranks, count) in [(2, 20), (3, 20), (5, 20), (7, 3), (8, 20), (16, 3)] {
        for slots in [1, 2, 5, 8] {
            let staging = Staging { slots, slot_bytes: 4, chunk_bytes_min: 1 };
            for (call, choose) in
                Call::all(ranks).into_iter().flat_map(|call| ADVERSARIES.map(|choose| (call, choose)))
            {
                let mut world = world(call, call.programs(ranks, count, staging), count, staging, true);
                run(&mut world, choose);
                call.assert_ended(&world, ranks, count);
            }
        }
    }
}

#[test]
fn every_interleaving_of_small_ones_ends_right() {
    let mut states = 0;
    for (ranks, count, slots) in [(2, 1, 1), (2, 3, 1), (2, 3, 2), (3, 1, 1), (3, 1, 2)] {
        let staging = Staging { slots, slot_bytes: 4, chunk_bytes_min: 1 };
        for call in Call::all(ranks).into_iter().filter(|call| call.messages(ranks) * count <= 6) {
            for in_place in [false, true] {
                let world = world(call, call.programs(ranks, count, staging), count, staging, in_place);
                states += explore(world, |end| call.assert_ended(end, ranks, count));
            }
        }
    }
    assert!(states > 10_000, "only {states} states explored");
}

/// Bytes that a rank sends, and the messages and peers with which it does so; that all credits go back.
fn totals(program: P2pSchedule) -> [usize; 3] {
    let [mut bytes, mut messages] = [0; 2];
    let (mut peers, mut used, mut credits) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
    for step in program {
        match step {
            Step::Put { to, source, .. } => {
                (bytes, messages) = (bytes + source.len(), messages + 1);
                peers.insert(to);
            }
            Step::ReduceFrom { from, .. } | Step::CopyFrom { from, .. } => {
                *used.entry(from).or_insert(0) += 1;
            }
            Step::Signal { to, consumed, .. } => {
                credits.insert(to, consumed);
            }
            _ => {}
        }
    }
    assert_eq!(used, credits, "all credits go back");
    [bytes, messages, peers.len()]
}

#[test]
fn a_rank_sends_what_theory_says() {
    let staging = Staging::default();
    for bits in 1..=4_u32 {
        let (ranks, n, rounds) = (1 << bits, 1_usize << bits, bits as usize);
        let (count, bytes) = (16 * 30, 16 * 30 * 4);
        for call in Call::all(ranks) {
            let all: Vec<_> = call.programs(ranks, count, staging).into_iter().map(totals).collect();
            let sum = all.iter().fold([0; 3], |sum, one| [sum[0] + one[0], sum[1] + one[1], sum[2] + one[2]]);
            // Half of the ranks send a part once, half of the others two parts to that, and so on.
            let along = rounds * n / 2 * bytes;
            let (each, all_together) = match call {
                Call::Halving { halvings } => {
                    let (half, halvings) = (bytes >> halvings, halvings as usize);
                    let sent = 2 * (bytes - half) + (rounds - halvings) * half;
                    (Some([sent, rounds + halvings, rounds]), None)
                }
                Call::Circulant => (Some([2 * (n - 1) * bytes / n, 2 * rounds, 2 * rounds - 1]), None),
                Call::Merging => (Some([rounds * bytes, rounds, rounds]), None),
                Call::AllGather | Call::ReduceScatter => (Some([(n - 1) * bytes, rounds, rounds]), None),
                Call::Barrier => (Some([rounds * bytes, rounds, rounds]), None),
                Call::Pairs => (Some([(n - 1) * bytes, n - 1, n - 1]), None),
                Call::Bruck => (Some([rounds * n / 2 * bytes, rounds, rounds]), None),
                Call::Hierarchy { hosts, .. } if n.is_multiple_of(hosts as usize) => {
                    let (far, near) = (hosts as usize - 1, n / hosts as usize - 1);
                    (Some([2 * (n - 1) * bytes / n, 2 * (far + near), near + far.min(1)]), None)
                }
                Call::Hierarchy { .. } => (None, None),
                Call::Broadcast { .. } | Call::Reduce { .. } | Call::TwoTrees { .. } => {
                    (None, Some([(n - 1) * bytes, n - 1, n - 1]))
                }
                Call::Gather { .. } | Call::Scatter { .. } => (None, Some([along, n - 1, n - 1])),
            };
            assert!(each.is_none_or(|each| all.iter().all(|one| *one == each)), "{call:?} of {n}: {all:?}");
            assert!(all_together.is_none_or(|expected| expected == sum), "{call:?} of {n}: {sum:?}");
        }
    }
}

/// The ranks that each rank has heard of at the end: those of all ranks whose messages it has waited for, as far as
/// they had heard when they sent.
fn heard(programs: Vec<P2pSchedule>) -> Vec<u32> {
    let mut heard: Vec<u32> = (0..programs.len()).map(|rank| 1 << rank).collect();
    let mut programs: Vec<_> = programs.into_iter().map(Iterator::peekable).collect();
    let (mut sent, mut taken) = (BTreeMap::new(), true);
    while std::mem::take(&mut taken) {
        for (rank, program) in programs.iter_mut().enumerate() {
            while let Some(step) = program.peek() {
                match *step {
                    Step::Put { to, message, .. } => {
                        sent.insert((rank as u32, to, message), heard[rank]);
                    }
                    Step::WaitCount { from, message } => {
                        let Some(with) = sent.get(&(from, rank as u32, message)) else { break };
                        heard[rank] |= with;
                    }
                    _ => {}
                }
                (taken, _) = (true, program.next());
            }
        }
    }
    assert!(programs.iter_mut().all(|program| program.peek().is_none()), "a rank waits for ever");
    heard
}

/// The ranks that messages join with rank 0, directly or over other ranks.
fn joined(programs: &[P2pSchedule]) -> u32 {
    let messages: Vec<_> = (0..)
        .zip(programs)
        .flat_map(|(from, program)| program.clone().filter_map(move |step| Some((from, step.peer()?))))
        .collect();
    (0..programs.len()).fold(1, |joined: u32, _| {
        messages.iter().fold(joined, |joined, &(from, to)| {
            let ends = 1 << from | 1 << to;
            if joined & ends == 0 { joined } else { joined | ends }
        })
    })
}

#[test]
fn messages_join_all_ranks_where_headers_do_not_go_around() {
    let mut seen = BTreeSet::new();
    for ranks in 2..=16_u32 {
        for (call, count) in
            Call::all(ranks).into_iter().flat_map(|call| [0, 1, 5, 16, 40].map(|count| (call, count)))
        {
            let programs = call.programs(ranks, count, STAGINGS[4]);
            let said = programs[0].joins_all();
            assert!(programs.iter().all(|program| program.joins_all() == said), "{call:?}");
            let name = format!("{call:?} of {ranks}, {count}");
            // With less than an element for each rank, some messages of these have none.
            let may_lack = matches!(call, Call::Halving { .. } | Call::Circulant) && count < ranks as usize;
            assert!(said || count == 0 || may_lack, "{name}");
            if said {
                let all = (1 << ranks) - 1;
                assert_eq!(joined(&programs), all, "{name}");
                let reaches_all = matches!(
                    call,
                    Call::Halving { .. }
                        | Call::Circulant
                        | Call::Merging
                        | Call::Hierarchy { .. }
                        | Call::AllGather
                        | Call::ReduceScatter
                        | Call::Barrier
                );
                // Every rank hears of every other, and so of every mistake, before it ends.
                assert!(!reaches_all || heard(programs).iter().all(|heard| *heard == all), "{name}");
                seen.insert(format!("{call:?}"));
            }
        }
    }
    for call in Call::all(16) {
        assert!(seen.contains(&format!("{call:?}")), "{call:?} joins no ranks");
    }
}

#[test]
fn ranks_at_distances_of_powers_of_two_are_all_that_rounds_send_to() {
    for ranks in 2..=40_u32 {
        let direct = |call: &Call| match call {
            Call::Pairs | Call::Hierarchy { .. } => true,
            Call::Merging => ranks >= 8,
            _ => false,
        };
        for call in Call::all(ranks).into_iter().filter(|call| !direct(call)) {
            for (rank, program) in (0..).zip(call.programs(ranks, 40, STAGINGS[4])) {
                for peer in program.filter_map(|step| step.peer()) {
                    let distance = (ranks + peer - rank) % ranks;
                    let is_near = distance.is_power_of_two() || (ranks - distance).is_power_of_two();
                    assert!(is_near, "{call:?}: rank {rank} of {ranks} and {peer}");
                }
            }
        }
    }
}

#[test]
fn scratch_is_bounded_by_the_slots_of_a_link_and_no_more_is_used_than_is_said() {
    for ranks in [2, 3, 5, 8, 13, 16_u32] {
        for staging in [STAGINGS[0], STAGINGS[4]] {
            for (call, count) in
                Call::all(ranks).into_iter().flat_map(|call| [1, 7, 40].map(|count| (call, count)))
            {
                if call == Call::Barrier {
                    // A barrier has one byte.
                    continue;
                }
                let programs = call.programs(ranks, count, staging);
                let mut world = world(call, programs.clone(), count, staging, false);
                run(&mut world, random(7));
                let slots = usize::from(staging.slots) * staging.slot_bytes;
                for (rank, program) in programs.iter().enumerate() {
                    let said = program.scratch_bytes();
                    assert!(said <= slots.max(ranks as usize * call.data_type(count).size()));
                    assert!(world.scratch_bytes(rank) <= said, "{call:?}: {}", world.scratch_bytes(rank));
                }
            }
        }
    }
}

#[test]
fn a_count_of_zero_has_no_steps_and_a_lone_rank_copies() {
    for call in (1..=16).flat_map(Call::all) {
        for program in call.programs(1, 0, STAGINGS[0]).into_iter().chain(call.programs(16, 0, STAGINGS[0])) {
            assert_eq!((program.scratch_bytes(), program.count()), (0, 0), "{call:?}");
        }
        let alone = call.on_one_rank().programs(1, 5, STAGINGS[0]).remove(0);
        let span = Span { offset: 0, len: 5 * call.data_type(5).size() };
        let [source, target] = [Buffer::Input, Buffer::Output].map(|buffer| Extent::of(buffer, span));
        assert_eq!(alone.collect::<Vec<_>>(), [Step::Copy { source, target }]);
    }
}

#[test]
fn bad_operations_are_refused() {
    let good =
        Operation { rank: 0, ranks: 3, count: 8, data_type: DataType::F32, staging: Staging::default() };
    let out = ScheduleError::RankOutOfRange { rank: 3, ranks: 3 };
    for call in Call::all(3) {
        let refused = |operation| call.schedule(operation).unwrap_err();
        assert_eq!(refused(Operation { rank: 3, ..good }), out);
        let error = refused(Operation { count: usize::MAX, ..good });
        assert!(matches!(error, ScheduleError::Count(ReduceError::TooManyElements { .. })), "{error}");
        let staging = Staging { slots: 0, ..Staging::default() };
        let error = refused(Operation { staging, ..good });
        assert!(matches!(error, ScheduleError::StagingTooSmall { .. }), "{error}");
        if call.parts(2) == 2 {
            // A part that fits, of a whole that does not.
            let error = refused(Operation { count: isize::MAX as usize / 8, ..good });
            assert!(matches!(error, ScheduleError::Count(ReduceError::TooManyElements { .. })), "{error}");
        }
    }
    for call in Call::rooted(3) {
        assert_eq!(call.schedule(good).unwrap_err(), out);
    }
}

#[test]
fn the_largest_operations_start_without_overflow() {
    for staging in [Staging::default(), Staging { slots: u16::MAX, slot_bytes: 4, chunk_bytes_min: 0 }] {
        for call in Call::all(u32::MAX) {
            // A hierarchy is told the host of every rank.
            let is_told = matches!(call, Call::Hierarchy { .. });
            let (ranks, call) =
                if is_told { (999, Call::Hierarchy { hosts: 9, dealt: true }) } else { (u32::MAX, call) };
            let count = isize::MAX as usize / call.parts(ranks);
            for rank in [0, 1, ranks / 2, ranks - 2, ranks - 1] {
                let operation = Operation { rank, ranks, count, data_type: DataType::I8, staging };
                assert!(call.schedule(operation).unwrap().take(100).count() > 0);
            }
        }
    }
}

proptest! {
    #[test]
    fn those_that_follow_each_other_share_their_slots_under_any_interleaving(
        (ranks, call) in (1_u32..=16).prop_flat_map(|ranks| {
            (Just(ranks), (0..Call::all(ranks).len()).prop_map(move |index| Call::all(ranks)[index]))
        }),
        count in 0_usize..120,
        slots in 1_u16..20,
        slot_bytes in 4_usize..120,
        chunk_bytes_min in 0_usize..40,
        in_place: bool,
        seed in 1_u64..,
    ) {
        let staging = Staging { slots, slot_bytes, chunk_bytes_min };
        let mut world = call::worlds(call, call.programs(ranks, count, staging), count, staging, in_place, 3);
        run(&mut world, random(seed));
        call.assert_ended(&world, ranks, count);
    }
}
