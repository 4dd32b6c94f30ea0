//! A model of the pipelined steps: all ranks of several operations in a row, without memory. The model records for each
//! unit what its owner last wrote, and proves that no rank reads or overwrites too early.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;

use super::*;
use crate::collective::call::Request;
use crate::collective::schedule::{Operation, Ring, Staging};
use crate::collective::{DataType, ReduceOp};
use crate::tests::soak::Sample;

/// The content of a unit: a range of the owner's input, or of a result that it made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    operation: usize,
    span: Span,
    made: bool,
}

/// A rank and its next step.
struct Rank {
    /// The steps of all operations, one after the other.
    steps: Vec<(usize, PipelinePlan, Step)>,
    at: usize,
}

/// The units that a step writes (its own rank's) and reads (of other ranks).
#[derive(Debug, Default)]
struct Touched {
    written: Vec<((u64, u32), Left)>,
    read: Vec<((u32, u64, u32), Left)>,
    output: Vec<Span>,
}

fn touched(operation: usize, pieces: &PipelinePlan, step: Step) -> Touched {
    let mut touched = Touched::default();
    let (rank, ranks) = (pieces.rank, pieces.ranks);
    let mut note = |round: u64, made, taken: bool| match made {
        Made::Own { span } => touched.output.push(span),
        Made::Copied { span, from, unit } => {
            // In an all-to-all the sender's part has another offset in its input than in this rank's output.
            let exchanged = pieces.call.collective == Collective::AllToAll;
            let left = if exchanged { pieces.span(round, rank) } else { span };
            assert_eq!(left.len, span.len);
            touched.read.push(((from, round % 2, unit), Left { operation, span: left, made: taken }));
            touched.output.push(span);
        }
        Made::Reduced { span, first, kept, left } => {
            assert!(first < ranks);
            for from in (0..ranks).filter(|from| *from != rank) {
                touched.read.push(((from, round % 2, rank), Left { operation, span, made: false }));
            }
            if left {
                touched.written.push(((round % 2, rank), Left { operation, span, made: true }));
            }
            if kept {
                touched.output.push(span);
            }
        }
    };
    match step {
        Step::Put(round) => {
            for (unit, span) in pieces.put(round) {
                assert!(span.len <= UNIT_BYTES && unit < ranks);
                touched.written.push(((round % 2, unit), Left { operation, span, made: false }));
            }
        }
        Step::Make(round) => pieces.make(round).for_each(|made| note(round, made, false)),
        Step::Take(round) => pieces.take(round).for_each(|made| note(round, made, true)),
        Step::AwaitPut(_) | Step::AwaitMade(_) => {}
    }
    touched
}

/// The step that an awaited rank must have done before another rank may go beyond `step`.
fn awaits(step: Step) -> Option<Step> {
    match step {
        Step::AwaitPut(round) => Some(Step::Put(round)),
        Step::AwaitMade(round) => Some(Step::Make(round)),
        _ => None,
    }
}

fn ranks_of(calls: &[Call], ranks: u32) -> Vec<Rank> {
    let options = CommunicatorOptions::default();
    let rank = |rank| {
        let steps = calls.iter().enumerate().flat_map(|(operation, call)| {
            let pieces = PipelinePlan::new(*call, RankOf { rank, size: ranks }, &options).unwrap();
            (0..).map_while(move |at| pieces.step(at)).map(move |step| (operation, pieces, step))
        });
        Rank { steps: steps.collect(), at: 0 }
    };
    (0..ranks).map(rank).collect()
}

/// Checks that every rank reads what was written for it, and that nobody overwrites what another rank may still read.
///
/// From its waits a rank knows how far each other rank has come at least. The check uses that knowledge alone, so it
/// holds for every interleaving. It also finds deadlocks: a condition that a step waits for stays true, so one
/// interleaving stands for all.
fn check(calls: &[Call], ranks: u32) {
    let mut all = ranks_of(calls, ranks);
    // The index of each step in its rank's list.
    let places: Vec<HashMap<(usize, u64), usize>> = all
        .iter()
        .map(|rank| {
            let told = |(at, (operation, _, step)): (usize, &(usize, PipelinePlan, Step))| match step {
                Step::Put(round) => Some(((*operation, 2 * round), at)),
                Step::Make(round) => Some(((*operation, 2 * round + 1), at)),
                _ => None,
            };
            rank.steps.iter().enumerate().filter_map(told).collect()
        })
        .collect();
    let key = |operation, step| match step {
        Step::Put(round) => (operation, 2 * round),
        Step::Make(round) => (operation, 2 * round + 1),
        other => panic!("{other:?} tells nothing"),
    };
    // The content of each unit, and the step of its owner that wrote it.
    let mut units: HashMap<(u32, u64, u32), (Left, usize)> = HashMap::new();
    // The step in which each reader read a unit last.
    let mut last_read: HashMap<(u32, u64, u32), HashMap<u32, usize>> = HashMap::new();
    let mut known = vec![vec![0_usize; ranks as usize]; ranks as usize];
    let mut ended = 0;
    while ended < ranks {
        ended = 0;
        let before: usize = all.iter().map(|rank| rank.at).sum();
        for own in 0..ranks {
            loop {
                let rank = &all[own as usize];
                let Some((operation, pieces, step)) = rank.steps.get(rank.at).copied() else {
                    ended += 1;
                    break;
                };
                if let Some(wanted) = awaits(step) {
                    let wanted = key(operation, wanted);
                    let place = |of: u32| places[of as usize][&wanted];
                    let others = || (0..ranks).filter(|of| *of != own && pieces.awaits(step, *of));
                    if others().any(|of| all[of as usize].at <= place(of)) {
                        break;
                    }
                    others().for_each(|of| known[own as usize][of as usize] = place(of) + 1);
                }
                let touched = touched(operation, &pieces, step);
                for ((generation, unit), left) in touched.written {
                    let at = (own, generation, unit);
                    for (reader, read_at) in last_read.remove(&at).unwrap_or_default() {
                        assert!(
                            known[own as usize][reader as usize] > read_at,
                            "rank {own} of {ranks} overwrites what {reader} may not have read: {step:?} of {calls:?}"
                        );
                    }
                    units.insert(at, (left, rank.at));
                }
                let at = rank.at;
                for (place, expected) in touched.read {
                    let (left, left_at) = units.get(&place).copied().expect("it reads what nobody has left");
                    assert_eq!(left, expected, "rank {own} of {ranks}: {step:?} of {calls:?}");
                    let knows = known[own as usize][place.0 as usize] > left_at;
                    assert!(knows, "rank {own} of {ranks} reads it without knowing: {step:?} of {calls:?}");
                    last_read.entry(place).or_default().insert(own, at);
                }
                all[own as usize].at += 1;
            }
        }
        let after: usize = all.iter().map(|rank| rank.at).sum();
        assert!(ended == ranks || after > before, "a deadlock of {ranks} ranks: {calls:?}");
    }
}

fn requests(ranks: u32) -> Vec<Request> {
    let op = ReduceOp::Sum;
    let roots = BTreeSet::from([0, 1, ranks - 1]).into_iter();
    let rooted = roots.flat_map(|root| [Collective::Broadcast.at(root), Collective::Reduce.by(op).at(root)]);
    let rest = [Collective::AllReduce.by(op), Collective::AllGather.into(), Collective::ReduceScatter.by(op)];
    rooted.chain(rest).chain([Collective::AllToAll.into()]).collect()
}

fn call(request: impl Into<Request>, count: usize) -> Call {
    request.into().of(count, DataType::F32)
}

/// Elements of a unit.
const UNIT: usize = UNIT_BYTES / 4;

#[test]
fn nothing_is_read_early_or_overwritten_for_2_to_16_ranks_whatever_follows_what() {
    let mut sample = Sample::one_of(5);
    for ranks in 2..17 {
        for first in requests(ranks) {
            for second in requests(ranks) {
                // Parts of one, two and five rounds; the one of two rounds does not fill its last unit.
                for counts in [[1, 1], [UNIT, 2 * UNIT - 1], [2 * UNIT - 1, 5 * UNIT], [5 * UNIT, 1]] {
                    if sample.leaves_out() {
                        continue;
                    }
                    let [first, second] =
                        [(first, counts[0]), (second, counts[1])].map(|(request, count)| {
                            let whole =
                                matches!(request.collective, Collective::AllReduce | Collective::Reduce);
                            call(request, if whole { count * ranks as usize } else { count })
                        });
                    check(&[first, second, first], ranks);
                }
            }
        }
    }
}

/// The range of its output that a rank must write.
fn output(call: &Call, rank: u32, ranks: u32) -> Span {
    let len = call.bytes();
    match call.collective {
        Collective::AllGather | Collective::AllToAll => Span { offset: 0, len: len * ranks as usize },
        Collective::ReduceScatter => Span { offset: len * rank as usize, len },
        Collective::Reduce if call.root != rank => Span { offset: 0, len: 0 },
        _ => Span { offset: 0, len },
    }
}

#[test]
fn every_element_is_made_once_and_of_all_ranks() {
    for ranks in 2..17 {
        for request in requests(ranks) {
            for count in [0, 1, 2, 3 * UNIT - 1, 200_003] {
                let call = call(request, count);
                for rank in 0..ranks {
                    let pieces = PipelinePlan::new(
                        call,
                        RankOf { rank, size: ranks },
                        &CommunicatorOptions::default(),
                    )
                    .unwrap();
                    let steps = (0..).map_while(|at| pieces.step(at));
                    let mut made: Vec<Span> = steps
                        .flat_map(|step| touched(0, &pieces, step).output)
                        .filter(|span| span.len > 0)
                        .collect();
                    made.sort_unstable_by_key(|span| span.offset);
                    let mut rest = output(&call, rank, ranks);
                    for span in made {
                        assert_eq!(span.offset, rest.offset, "{call:?} on {rank} of {ranks}");
                        rest = Span { offset: rest.offset + span.len, len: rest.len - span.len };
                    }
                    assert_eq!(rest.len, 0, "{call:?} on {rank} of {ranks}");
                }
            }
        }
    }
}

#[test]
fn marks_grow_from_step_to_step() {
    let pieces = PipelinePlan::new(
        call(Collective::AllGather, 7 * UNIT),
        RankOf { rank: 0, size: 2 },
        &CommunicatorOptions::default(),
    )
    .unwrap();
    let steps = (0..).map_while(|at| pieces.step(at));
    let marked = steps.filter(|step| matches!(step, Step::Put(_) | Step::Make(_)));
    let marks: Vec<u64> = marked.filter(|step| *step != Step::Put(7)).map(PipelinePlan::mark).collect();
    assert_eq!(marks.len(), 14);
    let end = PipelinePlan::mark(Step::Put(pieces.rounds + 1));
    assert!(marks.is_sorted_by(|one, next| one < next) && marks.iter().all(|mark| *mark < end));
}

proptest! {
    #[test]
    fn sums_begin_where_those_of_the_ring_do(
        ranks in 3_u32..9,
        count in prop_oneof![0_usize..70_000, 2_000_000_usize..6_000_000],
        chunk_bytes_min in 0_usize..100_000,
    ) {
        let options = CommunicatorOptions { chunk_bytes_min, ..CommunicatorOptions::default() };
        let call = call(Collective::AllReduce.by(ReduceOp::Sum), count);
        let mut first = vec![u32::MAX; count];
        let staging = Staging { chunk_bytes_min, ..Staging::default() };
        for rank in 0..ranks {
            let operation = Operation { rank, ranks, count, data_type: DataType::F32, staging };
            for step in Ring::all_reduce(operation).unwrap() {
                step.put_from_input().for_each(|span| first[span.offset / 4..span.range().end / 4].fill(rank));
            }
        }
        for rank in 0..ranks {
            let pieces = PipelinePlan::new(call, RankOf { rank, size: ranks }, &options).unwrap();
            for made in (0..pieces.rounds).flat_map(|round| pieces.make(round)) {
                let Made::Reduced { span, first: from, .. } = made else { panic!("{made:?}") };
                prop_assert!(first[span.offset / 4..span.range().end / 4].iter().all(|first| *first == from));
            }
        }
    }
}

#[test]
fn what_has_little_memory_or_no_root_is_the_rings() {
    let options = CommunicatorOptions::default();
    let is_ours = |call, options: &_| PipelinePlan::new(call, RankOf { rank: 0, size: 2 }, options).is_some();
    assert!(is_ours(call(Collective::AllGather, UNIT), &options));
    let little = CommunicatorOptions { slot_bytes: UNIT_BYTES - 1, ..options.clone() };
    assert!(!is_ours(call(Collective::AllGather, UNIT), &little));
    assert!(!is_ours(call(Collective::Broadcast.at(2), UNIT), &options));
    assert!(!is_ours(call(Collective::AllGather, usize::MAX / 4), &options));
}
