//! The kernels against scalar oracles that share no code with them.

use super::*;
use crate::tests::soak::Sample;

#[path = "../../../../../tests/oracle/mod.rs"]
mod oracle;

/// The elements of a buffer.
fn read(data_type: DataType, bytes: &[u8]) -> Vec<u64> {
    let element = |bytes: &[u8]| match *bytes {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_ne_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
        _ => u64::from_ne_bytes(bytes.try_into().unwrap()),
    };
    bytes.chunks(data_type.size()).map(element).collect()
}

/// Operands in the same order, each a list of the elements' bits.
fn bytes(data_type: DataType, operands: &[&[u64]]) -> Vec<Vec<u8>> {
    operands.iter().map(|operand| oracle::bytes(data_type, operand.iter().copied())).collect()
}

/// Calls `check` with every kind of vectors that this processor has, to store as usual and around the caches.
fn each_way(reduction: Reduction, mut check: impl FnMut(Reduction)) {
    for vectors in Vectors::all() {
        for expect in [CacheHint::Cached, CacheHint::Streamed] {
            check(reduction.with(vectors).with_cache_hint(expect));
        }
    }
}

/// Checks all pairs of elements, in place and out of place.
fn check_pairs(data_type: DataType, op: ReduceOp, left: &[u64], right: &[u64]) {
    let expected: Vec<u64> =
        left.iter().zip(right).map(|(left, right)| oracle::combine(data_type, op, *left, *right)).collect();
    let operands = bytes(data_type, &[left, right]);
    each_way(Reduction::new(data_type, op), |reduction| {
        let mut out = operands[0].clone();
        reduction.reduce_into(&mut out, &[&operands[1]]).unwrap();
        for (index, (got, expected)) in read(data_type, &out).into_iter().zip(&expected).enumerate() {
            let (left, right) = (left[index], right[index]);
            assert_eq!(
                got, *expected,
                "{left:x} and {right:x} are {expected:x}, not {got:x}, by {reduction:?}"
            );
        }
        let mut apart = vec![0; out.len()];
        reduction.reduce(&mut apart, &[&operands[0], &operands[1]]).unwrap();
        assert!(apart == out, "out of place is in place by {reduction:?}");
        apart.fill(0);
        let [left, right] = [0, 1].map(|operand| Operand::Slice(&operands[operand]));
        reduction.reduce_near(&mut apart, Some(left), right).unwrap();
        assert!(apart == out, "where operands lie is in place by {reduction:?}");
    });
}

/// Zeros, the edges of subnormals and of normals, ones, ties, the largest, infinities and NaNs; both signs.
fn special(data_type: DataType) -> Vec<u64> {
    let (exponent, fraction) = match data_type {
        DataType::F16 => (5, 10),
        DataType::Bf16 => (8, 7),
        DataType::F32 => (8, 23),
        DataType::F64 => (11, 52),
        _ => {
            let bits = 8 * data_type.size();
            let all = u64::MAX >> (64 - bits);
            return vec![
                0,
                1,
                2,
                3,
                7,
                all / 3,
                all / 2 - 1,
                all / 2,
                all / 2 + 1,
                all / 2 + 2,
                all - 1,
                all,
            ];
        }
    };
    let (one, quiet) = (1_u64 << fraction, 1_u64 << (fraction - 1));
    let bias = ((1_u64 << (exponent - 1)) - 1) << fraction;
    let infinity = ((1_u64 << exponent) - 1) << fraction;
    let edges = [0, quiet, one, 2 * one, bias, bias + one, bias + fraction * one, infinity - one, infinity];
    let around = edges.into_iter().flat_map(|edge| [edge.saturating_sub(1), edge, edge + 1, edge + 2]);
    let thirds = [bias + one / 3, bias - one + one / 3, infinity + quiet, infinity + quiet + 1];
    let positive: Vec<u64> = around.chain(thirds).collect();
    positive.into_iter().flat_map(|bits| [bits, bits | 1 << (exponent + fraction)]).collect()
}

#[test]
fn special_elements_of_every_type_are_the_oracles_for_every_operation() {
    for &data_type in DataType::ALL {
        let special = special(data_type);
        let (left, right): (Vec<u64>, Vec<u64>) =
            special.iter().flat_map(|&left| special.iter().map(move |&right| (left, right))).unzip();
        for &op in ReduceOp::ALL {
            check_pairs(data_type, op, &left, &right);
        }
    }
}

#[test]
fn every_element_of_16_bits_with_every_special_one_is_correctly_rounded() {
    let every: Vec<u64> = (0..=u64::from(u16::MAX)).collect();
    let mut sample = Sample::one_of(7);
    for data_type in [DataType::F16, DataType::Bf16] {
        for special in special(data_type) {
            for op in [ReduceOp::Sum, ReduceOp::Prod] {
                if sample.leaves_out() {
                    continue;
                }
                check_pairs(data_type, op, &vec![special; every.len()], &every);
            }
        }
    }
}

#[test]
fn every_pair_of_bytes_is_the_oracles() {
    let (left, right): (Vec<u64>, Vec<u64>) = (0..1 << 16).map(|pair| (pair >> 8, pair & 0xff)).unzip();
    for &op in ReduceOp::ALL {
        check_pairs(DataType::I8, op, &left, &right);
        check_pairs(DataType::U8, op, &left, &right);
    }
}

#[test]
fn operations_do_not_depend_on_the_order_of_their_operands() {
    for &data_type in DataType::ALL {
        let special = special(data_type);
        let reversed: Vec<u64> = special.iter().rev().copied().collect();
        for &op in ReduceOp::ALL {
            let mut one = oracle::bytes(data_type, special.iter().copied());
            let mut other = oracle::bytes(data_type, reversed.iter().copied());
            let first = one.clone();
            Reduction::new(data_type, op).reduce_into(&mut one, &[&other]).unwrap();
            Reduction::new(data_type, op).reduce_into(&mut other, &[&first]).unwrap();
            assert_eq!(one, other, "{op} of {data_type}");
        }
    }
}

/// Checks elements that are reduced over so many ranks.
fn check_finished(data_type: DataType, elements: &[u64], ranks: u32) {
    for &op in ReduceOp::ALL {
        let expected: Vec<u64> =
            elements.iter().map(|bits| oracle::finish(data_type, op, *bits, ranks)).collect();
        each_way(Reduction::new(data_type, op).over(ranks), |reduction| {
            let mut out = at(1, &oracle::bytes(data_type, elements.iter().copied()));
            reduction.reduce_into(&mut out[1..], &[]).unwrap();
            for (index, (got, expected)) in read(data_type, &out[1..]).into_iter().zip(&expected).enumerate()
            {
                let bits = elements[index];
                assert_eq!(got, *expected, "{bits:x} becomes {expected:x}, not {got:x}, by {reduction:?}");
            }
        });
    }
}

#[test]
fn averages_of_every_type_are_the_oracles() {
    for &data_type in DataType::ALL {
        let mut sample = Sample::one_of(if data_type.size() == 2 { 7 } else { 1 });
        let every: Vec<u64> = match data_type.size() {
            1 | 2 => (0..1 << (8 * data_type.size())).filter(|_| !sample.leaves_out()).collect(),
            _ => special(data_type),
        };
        for ranks in [1, 2, 3, 7, 200, 65_536, u32::MAX] {
            check_finished(data_type, &every, ranks);
        }
    }
    let mut out = 9_i32.to_ne_bytes();
    Reduction::new(DataType::I32, ReduceOp::Avg).over(0).reduce_into(&mut out, &[]).unwrap();
    assert_eq!(out, 9_i32.to_ne_bytes());
}

#[test]
fn lengths_that_differ_are_refused_and_nothing_is_written() {
    for &data_type in DataType::ALL {
        let (mut out, sum) = ([7; 16], Reduction::new(data_type, ReduceOp::Sum));
        let refused = Err(ReduceError::LengthsDiffer { left: 16, right: 8 });
        assert_eq!(sum.reduce_into(&mut out, &[&[1; 8]]), refused);
        assert_eq!(sum.reduce_into(&mut out, &[&[1; 16], &[1; 8]]), refused);
        assert_eq!(sum.reduce(&mut out, &[&[1; 16], &[1; 8]]), refused);
        assert_eq!(sum.reduce(&mut out, &[&[1; 8], &[1; 8]]), refused);
        assert_eq!(out, [7; 16]);
    }
}

#[test]
fn a_length_inside_an_element_is_refused_and_nothing_is_written() {
    let mut out = [7; 7];
    for &data_type in DataType::ALL.iter().filter(|data_type| data_type.size() > 1) {
        let refused = Err(ReduceError::PartialElement { bytes: 7, data_type });
        let average = Reduction::new(data_type, ReduceOp::Avg).over(2);
        assert_eq!(average.reduce_into(&mut out, &[&[1; 7]]), refused);
        assert_eq!(average.reduce(&mut out, &[&[1; 7], &[1; 7]]), refused);
        assert_eq!(average.reduce_into(&mut out, &[]), refused);
    }
    assert_eq!(out, [7; 7]);
}

#[test]
fn one_operand_is_left_as_it_is_and_none_is_refused() {
    // Not a number, and not the bits that results have.
    let input = 0x7fc0_0001_u32.to_ne_bytes();
    each_way(Reduction::new(DataType::F32, ReduceOp::Sum), |sum| {
        let mut out = [7; 4];
        assert_eq!(sum.reduce(&mut out, &[]), Err(ReduceError::NoInputs));
        assert_eq!(out, [7; 4]);
        sum.reduce(&mut out, &[&input]).unwrap();
        assert_eq!(out, input);
        sum.reduce_into(&mut out, &[]).unwrap();
        assert_eq!(out, input);
    });
}

#[test]
fn errors_say_what_to_do() {
    insta::assert_snapshot!(
        [
            ReduceError::LengthsDiffer { left: 8, right: 4 },
            ReduceError::NoInputs,
            ReduceError::PartialElement { bytes: 7, data_type: DataType::F16 },
            ReduceError::TooManyElements { count: usize::MAX, data_type: DataType::F32 },
        ]
        .map(|error| error.to_string())
        .join("\n"),
        @r"
        operands of 8 and 4 bytes cannot be reduced; pass ranges of one length
        a reduction out of place needs an input; pass at least one
        7 bytes end inside a half element of 2 bytes; pass whole elements
        18446744073709551615 float elements are more bytes than one buffer can have (9223372036854775807); split the operation
        "
    );
}

/// `0xa5` before the bytes.
fn at(shift: usize, bytes: &[u8]) -> Vec<u8> {
    [vec![0xa5; shift], bytes.to_vec()].concat()
}

mod many;
