//! The exact results, against the library's arithmetic in every order of ranks.

use super::*;
use half::{bf16, f16};
use proptest::prelude::*;
use rdma_collective::collective::Reduction;

/// Reduces in the order given by `first`: rank by rank from there, as a ring does.
fn ring<T: Element>(inputs: Inputs, count: usize, first: usize) -> Vec<T> {
    let own = |rank: usize| {
        let mut own = vec![T::default(); count];
        inputs.fill(rank % inputs.ranks, 0, &mut own);
        own
    };
    let mut all = own(first);
    let reduction = Reduction::new(T::DATA_TYPE, inputs.op);
    for step in 1..inputs.ranks {
        reduction.reduce_into(T::as_bytes_mut(&mut all), &[T::as_bytes(&own(first + step))]).unwrap();
    }
    reduction.over(inputs.ranks as u32).reduce_into(T::as_bytes_mut(&mut all), &[]).unwrap();
    all
}

/// Elements of an all-reduce that are wrong.
fn wrong<T: Element>(inputs: Inputs, all: &[T]) -> u64 {
    let call = Call { collective: Collective::AllReduce, op: inputs.op, root: 0 };
    Expected { inputs, call, place: Place::Out, rank: 0, count: all.len() }.wrong(all)
}

/// Calls the function for every type.
macro_rules! each_type {
    ($function:ident($($argument:expr),*)) => {{
        $function::<i8>($($argument),*);
        $function::<u8>($($argument),*);
        $function::<i16>($($argument),*);
        $function::<u16>($($argument),*);
        $function::<i32>($($argument),*);
        $function::<u32>($($argument),*);
        $function::<i64>($($argument),*);
        $function::<u64>($($argument),*);
        $function::<f16>($($argument),*);
        $function::<f32>($($argument),*);
        $function::<f64>($($argument),*);
        $function::<bf16>($($argument),*);
    }};
}

fn assert_right<T: Element>(inputs: Inputs, first: usize) {
    assert_eq!(
        wrong(inputs, &ring::<T>(inputs, 100, first)),
        0,
        "{} of {inputs:?} from {first}",
        T::DATA_TYPE
    );
}

fn assert_flip_found<T: Element>(inputs: Inputs, at: usize, bit: usize) {
    let mut all = ring::<T>(inputs, 64, 0);
    let bytes = T::as_bytes_mut(&mut all[at..=at]);
    let bit = bit % (8 * bytes.len());
    bytes[bit / 8] ^= 1 << (bit % 8);
    assert_eq!(wrong(inputs, &all), 1, "{} of {inputs:?}", T::DATA_TYPE);
}

proptest! {
    #[test]
    fn every_order_of_ranks_gives_the_exact_result(
        ranks in 1usize..=256,
        op in prop::sample::select(ReduceOp::ALL),
        round: u64,
        first in 0usize..256,
    ) {
        let inputs = Inputs { ranks, op, round, exact: true };
        each_type!(assert_right(inputs, first));
    }

    #[test]
    fn any_flipped_bit_is_found(
        ranks in 1usize..=8,
        op in prop::sample::select(ReduceOp::ALL),
        at in 0usize..64,
        bit in 0usize..64,
    ) {
        let inputs = Inputs { ranks, op, round: 7, exact: true };
        each_type!(assert_flip_found(inputs, at, bit));
    }
}

/// Most elements differ from those of another round, of another number of ranks and of another place.
fn assert_told_apart<T: Element>(op: ReduceOp) {
    let inputs = Inputs { ranks: 4, op, round: 1, exact: true };
    let right = ring::<T>(inputs, 1000, 0);
    assert_eq!(wrong(inputs, &right), 0);
    let others = [
        wrong(Inputs { round: 2, ..inputs }, &right),
        wrong(Inputs { ranks: 3, ..inputs }, &right),
        wrong(inputs, &right[1..]),
    ];
    // A rank fewer leaves the largest of four as it is, three times of four.
    let least = if matches!(op, ReduceOp::Max | ReduceOp::Min) { 150 } else { 700 };
    assert!(others.iter().all(|&wrong| wrong >= least), "{op} of {}: {others:?}", T::DATA_TYPE);
    assert_eq!(wrong::<T>(inputs, &[]), 0);
}

#[test]
fn another_round_a_missing_rank_and_a_shift_are_found() {
    for &op in ReduceOp::ALL {
        each_type!(assert_told_apart(op));
    }
}

#[test]
fn the_inputs_use_their_range() {
    for ranks in [1, 2, 256] {
        let inputs = Inputs { ranks, op: ReduceOp::Sum, round: 0, exact: true };
        let mut values = vec![f16::ZERO; 10_000];
        inputs.fill(0, 0, &mut values);
        let bound = 2048.0 / ranks as f32;
        assert!(values.iter().all(|value| value.to_f32().abs() <= bound));
        assert!(values.iter().any(|value| value.to_f32() > bound * 0.9));
        assert!(values.iter().any(|value| value.to_f32() < -bound * 0.9));
    }
    let mut bytes = vec![0_i8; 10_000];
    Inputs { ranks: 4, op: ReduceOp::Sum, round: 0, exact: true }.fill(0, 0, &mut bytes);
    assert!(bytes.contains(&i8::MIN) && bytes.contains(&i8::MAX));
}

#[test]
fn sums_that_nobody_checks_are_rounded() {
    let rounded = |exact| {
        let inputs = Inputs { ranks: 2, op: ReduceOp::Sum, round: 0, exact };
        let (mut left, mut right) = ([0_f32; 1000], [0_f32; 1000]);
        inputs.fill(0, 0, &mut left);
        inputs.fill(1, 0, &mut right);
        let sums = left.iter().zip(&right);
        sums.filter(|&(left, right)| f64::from(left + right) != f64::from(*left) + f64::from(*right)).count()
    };
    assert_eq!(rounded(true), 0);
    assert!(rounded(false) > 500, "{}", rounded(false));
}

#[test]
fn what_every_rank_has_after_each_collective_and_what_it_keeps() {
    const RANKS: usize = 4;
    let inputs = Inputs { ranks: RANKS, op: ReduceOp::Sum, round: 3, exact: true };
    let given = |rank: usize| {
        let mut given = [0_u32; 8];
        inputs.fill(rank, 0, &mut given);
        given
    };
    let (all, zeros): ([u32; 8], _) = (ring(inputs, 8, 0).try_into().unwrap(), [0; 8]);
    for rank in 0..RANKS {
        let own = given(rank);
        let part = 2 * rank..2 * rank + 2;
        let (mut gathered, mut exchanged) = ([0; 8], [0; 8]);
        for from in 0..RANKS {
            let place = 2 * from..2 * from + 2;
            gathered[place.clone()].copy_from_slice(&given(from)[place.clone()]);
            exchanged[place].copy_from_slice(&given(from)[part.clone()]);
        }
        let keeps = |changed: &[u32]| {
            let mut kept = own;
            kept[part.clone()].copy_from_slice(&changed[part.clone()]);
            kept
        };
        let is_root = rank == 1;
        let of_root = |result, others| if is_root { result } else { others };
        let before = given((rank + RANKS - 1) % RANKS);
        let results: [(_, &[u32], &[u32]); 9] = [
            (Collective::AllReduce, &all, &all),
            (Collective::AllGather, &gathered, &gathered),
            (Collective::ReduceScatter, &all[part.clone()], &keeps(&all)),
            (Collective::Broadcast, &given(1), &given(1)),
            (Collective::Reduce, of_root(&all, &zeros), of_root(&all, &own)),
            (Collective::AllToAll, &exchanged, &exchanged),
            (Collective::Gather, of_root(&gathered, &zeros), of_root(&gathered, &own)),
            (Collective::Scatter, &given(1)[part.clone()], &keeps(&given(1))),
            (Collective::SendRecv, &before, &before),
        ];
        assert!(results.iter().map(|(collective, ..)| collective).eq(Collective::ALL));
        for (collective, out, in_place) in results {
            let call = Call { collective, op: inputs.op, root: 1 };
            let count = collective.shape(8, RANKS).count;
            for (place, output) in [(Place::Out, out), (Place::In, in_place)] {
                let expected = Expected { inputs, call, place, rank, count };
                assert_eq!(expected.wrong(output), 0, "{collective:?} {place:?} on {rank}");
                for index in 0..output.len() {
                    let mut flipped = output.to_vec();
                    flipped[index] ^= 1 << (5 * index % 32);
                    assert_eq!(expected.wrong(&flipped), 1, "{collective:?} {place:?} on {rank}");
                }
            }
        }
    }
}
