//! The exact results, against the library's arithmetic in every order of ranks.

use super::*;
use half::{bf16, f16};
use proptest::prelude::*;
use rdma_collective::collective::{finish, reduce_into};

/// Reduces in the order given by `first`: rank by rank from there, as a ring does.
fn ring<T: Element>(inputs: Inputs, count: usize, first: usize) -> Vec<T> {
    let own = |rank: usize| {
        let mut own = vec![T::default(); count];
        inputs.fill(rank % inputs.ranks, &mut own);
        own
    };
    let mut all = own(first);
    for step in 1..inputs.ranks {
        reduce_into(T::as_bytes_mut(&mut all), T::as_bytes(&own(first + step)), T::DATA_TYPE, inputs.op)
            .unwrap();
    }
    finish(T::as_bytes_mut(&mut all), T::DATA_TYPE, inputs.op, inputs.ranks as u32).unwrap();
    all
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
        inputs.wrong(&ring::<T>(inputs, 100, first)),
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
    assert_eq!(inputs.wrong(&all), 1, "{} of {inputs:?}", T::DATA_TYPE);
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
    assert_eq!(inputs.wrong(&right), 0);
    let others = [
        Inputs { round: 2, ..inputs }.wrong(&right),
        Inputs { ranks: 3, ..inputs }.wrong(&right),
        inputs.wrong(&right[1..]),
    ];
    // A rank fewer leaves the largest of four as it is, three times of four.
    let least = if matches!(op, ReduceOp::Max | ReduceOp::Min) { 150 } else { 700 };
    assert!(others.iter().all(|&wrong| wrong >= least), "{op} of {}: {others:?}", T::DATA_TYPE);
    assert_eq!(inputs.wrong::<T>(&[]), 0);
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
        inputs.fill(0, &mut values);
        let bound = 2048.0 / ranks as f32;
        assert!(values.iter().all(|value| value.to_f32().abs() <= bound));
        assert!(values.iter().any(|value| value.to_f32() > bound * 0.9));
        assert!(values.iter().any(|value| value.to_f32() < -bound * 0.9));
    }
    let mut bytes = vec![0_i8; 10_000];
    Inputs { ranks: 4, op: ReduceOp::Sum, round: 0, exact: true }.fill(0, &mut bytes);
    assert!(bytes.contains(&i8::MIN) && bytes.contains(&i8::MAX));
}

#[test]
fn sums_that_nobody_checks_are_rounded() {
    let rounded = |exact| {
        let inputs = Inputs { ranks: 2, op: ReduceOp::Sum, round: 0, exact };
        let (mut left, mut right) = ([0_f32; 1000], [0_f32; 1000]);
        inputs.fill(0, &mut left);
        inputs.fill(1, &mut right);
        let sums = left.iter().zip(&right);
        sums.filter(|&(left, right)| f64::from(left + right) != f64::from(*left) + f64::from(*right)).count()
    };
    assert_eq!(rounded(true), 0);
    assert!(rounded(false) > 500, "{}", rounded(false));
}
