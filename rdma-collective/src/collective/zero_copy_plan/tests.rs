//! All ranks together, in any order of their moves: every element once, of what the inputs were, in and out of place.

use proptest::prelude::*;

use super::*;
use crate::collective::call::Request;
use crate::collective::schedule::{Operation, Ring, Staging};
use crate::collective::{DataType, ReduceOp};
use crate::tests::soak::Sample;

const PIECE: usize = 2 * LINE;

fn staging() -> Staging {
    Staging { slots: 4, slot_bytes: 96, chunk_bytes_min: 16 }
}

fn calls(count: usize, ranks: u32) -> Vec<Call> {
    let op = ReduceOp::Sum;
    let roots =
        (0..ranks).flat_map(|root| [Collective::Broadcast.at(root), Collective::Reduce.by(op).at(root)]);
    let rest = [Collective::AllReduce.by(op), Collective::ReduceScatter.by(op)];
    let rest = rest.into_iter().chain([Collective::AllGather, Collective::AllToAll].map(Request::from));
    let call = |request: Request| request.of(count, DataType::I16);
    roots.chain(rest).map(call).collect()
}

fn direct(call: Call, rank: u32, ranks: u32, reproducible: bool) -> ZeroCopyPlan {
    let order = call.order(RankOf { rank, size: ranks }, staging(), reproducible).unwrap();
    ZeroCopyPlan::new(call, RankOf { rank, size: ranks }, order, PIECE)
}

/// A cell of memory: the operands that it is made of, in order. The operand of a rank is its number; where bytes may
/// come from any offset, the offset is added.
type Cell = Vec<u32>;

fn operand(call: &Call, rank: u32, at: usize) -> u32 {
    if call.collective == Collective::AllToAll { rank << 20 | at as u32 } else { rank }
}

/// A rank's memory by bytes of the operation; in place, the input is the output.
struct Memory {
    input: Option<Vec<Cell>>,
    output: Vec<Cell>,
    /// The bytes of the output that were stored.
    stored: Vec<bool>,
}

impl Memory {
    /// The memory of a rank whose input is `len` bytes from `origin` on, in an operation of `all` bytes.
    fn new(call: &Call, rank: u32, in_place: bool, (origin, len): (usize, usize), all: usize) -> Self {
        let mut input = vec![Vec::new(); all];
        (origin..origin + len).for_each(|at| input[at] = vec![operand(call, rank, at)]);
        let (input, output) = if in_place { (None, input) } else { (Some(input), vec![Vec::new(); all]) };
        Self { input, output, stored: vec![false; all] }
    }

    fn read(&self, at: usize) -> &Cell {
        &self.input.as_ref().unwrap_or(&self.output)[at]
    }

    fn store(&mut self, at: usize, cell: Cell) {
        assert!(!std::mem::replace(&mut self.stored[at], true), "byte {at} is stored twice");
        self.output[at] = cell;
    }
}

/// Stores the bytes of a rank in place to where another rank had the bytes that it took.
fn give(memories: &mut [Memory], (rank, at): (u32, usize), (to, place): (u32, usize)) {
    let given = memories[rank as usize].read(at).clone();
    memories[to as usize].store(place, given);
}

/// The operands expected at a byte of a rank's output; `None` where nothing is stored.
fn expected(call: &Call, rank: u32, ranks: u32, at: usize, order: ReduceOrder) -> Option<Cell> {
    let from = |first| (0..ranks).map(|step| (first + step) % ranks).collect();
    let own = (rank as usize * call.bytes()..).contains(&at) && at < (rank as usize + 1) * call.bytes();
    match call.collective {
        Collective::AllGather => Some(vec![(at / call.bytes()) as u32]),
        Collective::AllToAll => {
            let (from, at) = ((at / call.bytes()) as u32, at % call.bytes());
            Some(vec![operand(call, from, rank as usize * call.bytes() + at)])
        }
        Collective::ReduceScatter if !own => None,
        Collective::Reduce if call.root != rank => None,
        Collective::Broadcast => Some(vec![call.root]),
        _ => Some(from(order.at(at).0)),
    }
}

fn check(call: Call, ranks: u32, reproducible: bool, in_place: u32, mut choose: impl FnMut(usize) -> usize) {
    let steps = |rank| ZeroCopyPlan { in_place, ..direct(call, rank, ranks, reproducible) };
    let all = steps(0).lengths().into_iter().max().unwrap_or_default();
    let is_in_place = |rank: u32| in_place & 1 << rank != 0;
    let mut memories: Vec<Memory> = (0..ranks)
        .map(|rank| {
            let origin = call.origins(rank).input;
            Memory::new(&call, rank, is_in_place(rank), (origin, steps(rank).lengths()[0]), all)
        })
        .collect();
    let mut moves: Vec<_> = (0..ranks).map(|rank| (rank, steps(rank))).collect();
    while !moves.is_empty() {
        let index = choose(moves.len());
        let (rank, own) = &mut moves[index];
        let (rank, left) = (*rank, own.left());
        let Some(Move { span, at: source, from, to }) = own.next() else {
            assert_eq!(left, 0);
            moves.remove(index);
            continue;
        };
        assert_eq!(own.left(), left - span.len, "what is left is told");
        assert!(span.len > 0 && span.len <= PIECE);
        for (at, source) in span.range().zip(source..) {
            let cell: Cell = match from {
                From::One(from) => {
                    assert!(from == rank || own.reads(from));
                    let cell = memories[from as usize].read(source).clone();
                    if to == To::Exchanged {
                        assert!(own.writes(from));
                        give(&mut memories, (rank, at), (from, source));
                    }
                    cell
                }
                From::All { first } => (0..ranks)
                    .flat_map(|step| memories[((first + step) % ranks) as usize].read(at).clone())
                    .collect(),
            };
            let to = match to {
                To::One(to) => to..to + 1,
                To::All => 0..ranks,
                To::Exchanged => rank..rank + 1,
            };
            for to in to {
                assert!(to == rank || own.writes(to));
                // Bytes that lie there already are not copied.
                let stays = from == From::One(rank) && to == rank && is_in_place(rank);
                if !stays {
                    memories[to as usize].store(at, cell.clone());
                }
            }
        }
    }
    for (rank, memory) in (0..).zip(&memories) {
        let order = call.order(RankOf { rank, size: ranks }, staging(), reproducible).unwrap();
        for at in 0..all {
            let made = expected(&call, rank, ranks, at, order);
            let stays = is_in_place(rank) && made == Some(vec![operand(&call, rank, at)]);
            assert_eq!(memory.stored[at], made.is_some() && !stays, "byte {at} of {rank} in {call:?}");
            if let Some(made) = made {
                assert_eq!(memory.output[at], made, "byte {at} of {rank} of {ranks} in {call:?}");
            }
            if let Some(input) = &memory.input {
                let begins = call.origins(rank).input;
                let has = (begins..begins + steps(rank).lengths()[0]).contains(&at);
                let was = if has { vec![operand(&call, rank, at)] } else { Vec::new() };
                assert_eq!(input[at], was, "an input was written");
            }
        }
    }
}

#[test]
fn every_element_is_made_once_of_what_the_inputs_were() {
    let mut sample = Sample::one_of(5);
    for ranks in 2..=16 {
        for count in [1, 31, 33, 257] {
            for call in calls(count, ranks) {
                for (reproducible, in_place) in [(false, 0), (true, u32::MAX), (false, 0b0110_1100_1010_0101)]
                {
                    if sample.leaves_out() {
                        continue;
                    }
                    // The two extremes: the first rank makes all its moves before the second begins, and the reverse.
                    check(call, ranks, reproducible, in_place, |_| 0);
                    check(call, ranks, reproducible, in_place, |left| left - 1);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn whatever_the_order_of_moves_and_the_places(
        ranks in 2_u32..=16,
        count in 1_usize..700,
        which in any::<prop::sample::Index>(),
        (reproducible, in_place) in any::<(bool, u32)>(),
        mut mixed in any::<u64>(),
    ) {
        let calls = calls(count, ranks);
        check(calls[which.index(calls.len())], ranks, reproducible, in_place, |left| {
            mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ 1;
            mixed as usize % left
        });
    }

    #[test]
    fn sums_begin_where_those_of_the_ring_do(
        ranks in 2_u32..9,
        count in 1_usize..3000,
        slot_bytes in 4_usize..300,
        chunk_bytes_min in 0_usize..300,
    ) {
        let staging = Staging { slots: 4, slot_bytes, chunk_bytes_min };
        let operation = |rank| Operation { rank, ranks, count, data_type: DataType::F32, staging };
        let mut first = vec![u32::MAX; count];
        for rank in 0..ranks {
            for step in Ring::all_reduce(operation(rank)).unwrap() {
                // The rank that sends an element from its input is the first one of that element's sum.
                for span in step.put_from_input() {
                    first[span.offset / 4..span.range().end / 4].fill(rank);
                }
            }
        }
        let order = ReduceOrder::of_ring(&operation(0)).unwrap();
        let mut at = 0;
        while at < 4 * count {
            let (from, end) = order.at(at);
            prop_assert!(end > at && end <= 4 * count);
            prop_assert!(first[at / 4..end / 4].iter().all(|first| *first == from));
            at = end;
        }
    }
}

#[test]
fn ranks_have_as_much_to_make_and_no_line_in_common() {
    let call = Collective::AllReduce.by(ReduceOp::Sum).of(100_001, DataType::I16);
    let mut end = 0;
    for rank in 0..7 {
        let Span { offset, len } = direct(call, rank, 7, false).share(rank);
        assert_eq!(offset, end);
        assert!(
            offset.is_multiple_of(LINE) && len.div_ceil(LINE).abs_diff(call.bytes().div_ceil(LINE) / 7) <= 1
        );
        end += len;
    }
    assert_eq!(end, call.bytes());
}

#[test]
fn ranks_of_an_all_to_all_have_as_much_to_make_in_and_out_of_place() {
    let call = Request::from(Collective::AllToAll).of(100_001, DataType::I16);
    for in_place in [0, u32::MAX] {
        for rank in 0..7 {
            let moves = ZeroCopyPlan { in_place, ..direct(call, rank, 7, false) };
            let others = moves.filter(|made| made.from != From::One(rank));
            let bytes: usize = others.map(|made| made.span.len).sum();
            let expected = 6 * call.bytes() / if in_place == 0 { 1 } else { 2 };
            assert!(bytes.abs_diff(expected) <= 6 * LINE, "{rank}: {bytes}, not {expected}");
        }
    }
}
