//! Tests of the ring schedules of all collectives but all-reduce: under every interleaving, each element must arrive
//! where it belongs.

mod default_table;
mod scale;
pub(super) mod simulate;

use proptest::prelude::*;

use self::simulate::World;
use self::simulate::choose::{ADVERSARIES, STAGINGS, explore, random, run};
use super::*;
use crate::collective::DataType;
use crate::collective::{ReduceError, ScheduleError};

/// A collective.
#[derive(Clone, Copy, Debug)]
enum Call {
    AllGather,
    ReduceScatter { reproducible: bool },
    Broadcast { root: u32 },
    Reduce { root: u32, reproducible: bool },
}

use Call::{AllGather, Broadcast, Reduce, ReduceScatter};

impl Call {
    /// All collectives of `ranks` ranks, with the first, the last and a root between.
    fn all(ranks: u32) -> Vec<Self> {
        let mut roots = vec![0, ranks / 2, ranks - 1];
        roots.dedup();
        let mut calls =
            vec![AllGather, ReduceScatter { reproducible: false }, ReduceScatter { reproducible: true }];
        for root in roots {
            calls.push(Broadcast { root });
            calls.extend([false, true].map(|reproducible| Reduce { root, reproducible }));
        }
        calls
    }

    fn schedule(self, operation: Operation) -> Result<Schedule, ScheduleError> {
        match self {
            AllGather => Schedule::all_gather(operation),
            ReduceScatter { reproducible } => Schedule::reduce_scatter(operation, reproducible),
            Broadcast { root } => Schedule::broadcast(operation, root),
            Reduce { root, reproducible } => Schedule::reduce(operation, root, reproducible),
        }
    }

    fn programs(self, ranks: u32, count: usize, data_type: DataType, staging: Staging) -> Vec<Schedule> {
        let operation = |rank| Operation { rank, ranks, count, data_type, staging };
        (0..ranks).map(|rank| self.schedule(operation(rank)).unwrap()).collect()
    }

    /// The rank whose part an element is in.
    fn owner(self, element: usize, count: usize) -> Option<usize> {
        matches!(self, AllGather | ReduceScatter { .. }).then(|| element / count)
    }

    /// The rank from which on an element is reduced, in the order of the ring.
    fn first(self, element: usize, count: usize, ranks: usize) -> usize {
        match self {
            ReduceScatter { reproducible: false } => (element / count + 1) % ranks,
            Reduce { root, reproducible: false } => (root as usize + 1) % ranks,
            _ => 0,
        }
    }

    /// The cell that `rank` must have at an index; `None` where it may store nothing.
    fn expected(self, rank: usize, element: usize, count: usize, ranks: usize) -> Option<simulate::Cell> {
        let total = || simulate::Cell::total(ranks, element, self.first(element, count, ranks));
        match self {
            AllGather => Some(simulate::Cell::of(element / count, element)),
            Broadcast { root } => Some(simulate::Cell::of(root as usize, element)),
            ReduceScatter { .. } => (self.owner(element, count) == Some(rank)).then(total),
            Reduce { root, .. } => (rank == root as usize).then(total),
        }
    }

    /// Whether a rank's input has the element of an index.
    fn has(self, rank: usize, element: usize, count: usize) -> bool {
        match self {
            AllGather => self.owner(element, count) == Some(rank),
            Broadcast { root } => rank == root as usize,
            _ => true,
        }
    }

    fn world(
        self,
        ranks: u32,
        count: usize,
        staging: Staging,
        times: usize,
        in_place: bool,
    ) -> World<Schedule> {
        let data_type = if count.is_multiple_of(2) { DataType::F32 } else { DataType::F16 };
        let (programs, parts) = (self.programs(ranks, count, data_type, staging), self.parts(ranks));
        let has = |rank, element| self.has(rank, element, count);
        World::of_inputs(programs, times, parts * count, data_type.size(), staging.slots, in_place, has)
    }

    fn parts(self, ranks: u32) -> usize {
        if self.owner(0, 1).is_some() { ranks as usize } else { 1 }
    }

    fn assert_ended(self, world: &World<Schedule>, ranks: u32, count: usize) {
        world.assert_ended(|rank, element| self.expected(rank, element, count, ranks as usize));
    }
}

#[test]
fn every_element_comes_where_it_must_for_1_to_16_ranks() {
    for ranks in 1..=16_u32 {
        for staging in STAGINGS {
            let chunk = staging.slot_bytes / 4;
            let round = chunk * usize::from(staging.slots / 2).max(1);
            let edges = [chunk, round].into_iter().flat_map(|edge| [edge - 1, edge, 2 * edge + 1]);
            for count in [0, 1, 2].into_iter().chain(edges) {
                for call in Call::all(ranks) {
                    let in_place = count % 3 == ranks as usize % 3;
                    let mut world = call.world(ranks, count, staging, 1, in_place);
                    run(&mut world, random((count as u64 + 1) << 32 | u64::from(ranks) | 1 << 20));
                    call.assert_ended(&world, ranks, count);
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
            for count in [3, 20] {
                for call in Call::all(ranks) {
                    for choose in ADVERSARIES {
                        let mut world = call.world(ranks, count, staging, 1, true);
                        run(&mut world, choose);
                        call.assert_ended(&world, ranks, count);
                    }
                }
            }
        }
    }
}

#[test]
fn every_interleaving_of_small_ones_ends_right() {
    let mut states = 0;
    for (ranks, count, slots) in
        [(2, 1, 1), (2, 2, 1), (2, 2, 2), (3, 1, 1), (3, 1, 2), (3, 3, 1), (3, 3, 2), (4, 2, 1)]
    {
        let staging = Staging { slots, slot_bytes: 4, chunk_bytes_min: 1 };
        // Collectives of parts send `ranks` times as many messages.
        for call in Call::all(ranks).into_iter().filter(|call| call.parts(ranks) * count <= 4) {
            for in_place in [false, true] {
                let world = call.world(ranks, count, staging, 1, in_place);
                states += explore(world, |end| call.assert_ended(end, ranks, count));
            }
        }
    }
    assert!(states > 10_000, "only {states} states explored");
}

/// Bytes that a rank sends, receives, reduces and leaves in the output; that all credits go back, and the end is
/// known.
fn totals(mut program: Schedule) -> [usize; 4] {
    let [mut sent, mut received, mut reduced, mut stored] = [0; 4];
    let (mut messages, mut credits) = (0, 0);
    let puts = program.clone().filter(|step| matches!(step, Step::Put { .. })).count();
    assert_eq!(program.has_put_all(), puts == 0, "a rank that puts nothing knows it at first");
    let mut put = 0;
    while let Some(step) = program.next() {
        match step {
            Step::Put { source, .. } => {
                (put, sent) = (put + 1, sent + source.len());
                assert!(!program.has_put_all() || put == puts);
            }
            Step::ReduceFrom { target, .. } | Step::CopyFrom { target, .. } => {
                (messages, received) = (messages + 1, received + target.len());
                reduced += if matches!(step, Step::ReduceFrom { .. }) { target.len() } else { 0 };
                stored += if target.buffer() == Buffer::Output { target.len() } else { 0 };
            }
            Step::Copy { source, .. } => stored += source.len(),
            Step::Signal { consumed, .. } => credits = consumed,
            Step::WaitCount { .. } | Step::WaitPut { .. } => {}
        }
    }
    assert_eq!(credits, messages, "all credits go back");
    [sent, received, reduced, stored]
}

#[test]
fn a_rank_sends_what_theory_says() {
    for ranks in 2..=16_u32 {
        for staging in STAGINGS {
            let (n, count) = (ranks as usize, 1000);
            let bytes = 4 * count;
            for call in Call::all(ranks) {
                for (rank, program) in (0..).zip(call.programs(ranks, count, DataType::F32, staging)) {
                    let behind = |first: u32| (rank + ranks - first) % ranks;
                    let once = |is: bool| if is { bytes } else { 0 };
                    let last = rank + 1 == ranks;
                    // Parts of others that pass a rank on their way from the last one, and its own.
                    let passed = if last { n - 1 } else { n - 1 - rank as usize - 1 };
                    let expected = match call {
                        AllGather => [(n - 1) * bytes, (n - 1) * bytes, 0, n * bytes],
                        ReduceScatter { reproducible: false } => {
                            [(n - 1) * bytes, (n - 1) * bytes, (n - 1) * bytes, bytes]
                        }
                        ReduceScatter { reproducible: true } => {
                            let reduced = if rank == 0 { 0 } else { n * bytes };
                            let own = if last { 0 } else { (n - 1 - rank as usize) * bytes };
                            [once(!last) * n + passed * bytes, reduced + own, reduced, bytes]
                        }
                        Broadcast { root } => {
                            let place = behind(root);
                            [once(place + 1 < ranks), once(place > 0), 0, bytes]
                        }
                        Reduce { root, reproducible: false } => {
                            let place = behind((root + 1) % ranks);
                            [once(place + 1 < ranks), once(place > 0), once(place > 0), once(rank == root)]
                        }
                        Reduce { root, reproducible: true } => {
                            let back = root + 1 < ranks;
                            let sent = once(!last) + once(back && (last || rank < root));
                            let spread = once(back && !last && rank <= root);
                            [sent, once(rank > 0) + spread, once(rank > 0), once(rank == root)]
                        }
                    };
                    assert_eq!(totals(program), expected, "rank {rank} of {ranks} in {call:?}");
                }
            }
        }
    }
}

#[test]
fn a_count_of_zero_has_no_steps_and_a_lone_rank_copies() {
    for ranks in 1..=16 {
        for call in Call::all(ranks) {
            for program in call.programs(ranks, 0, DataType::F32, Staging::default()) {
                assert!(program.has_put_all());
                assert_eq!(program.count(), 0);
            }
        }
    }
    for call in Call::all(1) {
        let alone = call.programs(1, 5, DataType::F16, Staging::default()).remove(0);
        assert_eq!(alone.collect::<Vec<_>>(), [Step::copy(Span { offset: 0, len: 10 })]);
    }
}

#[test]
fn bad_operations_are_refused() {
    let good =
        Operation { rank: 0, ranks: 3, count: 8, data_type: DataType::F32, staging: Staging::default() };
    for call in Call::all(3) {
        let refused = |operation| call.schedule(operation).unwrap_err();
        let out = ScheduleError::RankOutOfRange { rank: 3, ranks: 3 };
        assert_eq!(refused(Operation { rank: 3, ..good }), out);
        let error = refused(Operation { count: usize::MAX, ..good });
        assert!(matches!(error, ScheduleError::Count(ReduceError::TooManyElements { .. })), "{error}");
        let staging = Staging { slots: 0, ..Staging::default() };
        let error = refused(Operation { staging, ..good });
        assert!(matches!(error, ScheduleError::StagingTooSmall { .. }), "{error}");
    }
    // A part that fits, of a whole that does not.
    let count = isize::MAX as usize / 8;
    for call in [AllGather, ReduceScatter { reproducible: false }, ReduceScatter { reproducible: true }] {
        let error = call.schedule(Operation { count, ..good }).unwrap_err();
        assert!(matches!(error, ScheduleError::Count(ReduceError::TooManyElements { .. })), "{error}");
    }
    for call in [Broadcast { root: 3 }, Reduce { root: 3, reproducible: true }] {
        let error = call.schedule(good).unwrap_err();
        assert_eq!(error, ScheduleError::RankOutOfRange { rank: 3, ranks: 3 });
    }
}

#[test]
fn the_largest_operations_start_without_overflow() {
    let ranks = u32::MAX;
    for staging in [Staging::default(), Staging { slots: u16::MAX, slot_bytes: 4, chunk_bytes_min: 0 }] {
        for call in Call::all(ranks) {
            let count = isize::MAX as usize / call.parts(ranks);
            for rank in [0, 1, ranks - 2, ranks - 1] {
                let operation = Operation { rank, ranks, count, data_type: DataType::I8, staging };
                assert!(call.schedule(operation).unwrap().take(100).count() > 0);
            }
        }
    }
}

fn calls(ranks: u32) -> impl Strategy<Value = Call> {
    let root = 0..ranks;
    prop_oneof![
        Just(AllGather),
        any::<bool>().prop_map(|reproducible| ReduceScatter { reproducible }),
        root.clone().prop_map(|root| Broadcast { root }),
        (root, any::<bool>()).prop_map(|(root, reproducible)| Reduce { root, reproducible }),
    ]
}

proptest! {
    #[test]
    fn those_that_follow_each_other_share_their_slots_under_any_interleaving(
        (ranks, call) in (1_u32..=16).prop_flat_map(|ranks| (Just(ranks), calls(ranks))),
        count in 0_usize..120,
        slots in 1_u16..20,
        slot_bytes in 4_usize..120,
        chunk_bytes_min in 0_usize..40,
        in_place: bool,
        seed in 1_u64..,
    ) {
        let staging = Staging { slots, slot_bytes, chunk_bytes_min };
        let mut world = call.world(ranks, count, staging, 3, in_place);
        run(&mut world, random(seed));
        call.assert_ended(&world, ranks, count);
    }
}
