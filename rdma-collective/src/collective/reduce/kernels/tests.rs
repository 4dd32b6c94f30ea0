//! The kernels against scalar oracles that share no code with them.

use proptest::prelude::*;

use super::*;

#[path = "../../../../tests/oracle/mod.rs"]
mod oracle;

const FLOATS: [DataType; 4] = [DataType::F16, DataType::Bf16, DataType::F32, DataType::F64];

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

fn assert_combined(data_type: DataType, op: ReduceOp, left: &[u64], right: &[u64], out: &[u8]) {
    let got = read(data_type, out);
    assert_eq!(got.len(), left.len());
    for ((&left, &right), got) in left.iter().zip(right).zip(got) {
        let expected = oracle::combine(data_type, op, left, right);
        assert_eq!(got, expected, "{left:x} {op} {right:x} is {expected:x} in {data_type}, not {got:x}");
    }
}

/// Checks all pairs of elements, in place and out of place.
fn check_pairs(data_type: DataType, op: ReduceOp, left: &[u64], right: &[u64]) {
    let operands = [left, right].map(|elements| oracle::bytes(data_type, elements.iter().copied()));
    let mut out = operands[0].clone();
    reduce_into(&mut out, &operands[1], data_type, op).unwrap();
    assert_combined(data_type, op, left, right, &out);
    let mut apart = vec![0; out.len()];
    reduce(&mut apart, &operands[0], &operands[1], data_type, op).unwrap();
    assert_eq!(apart, out, "out of place is in place");
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
    for data_type in [DataType::F16, DataType::Bf16] {
        for special in special(data_type) {
            for op in [ReduceOp::Sum, ReduceOp::Prod] {
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
            reduce_into(&mut one, &other, data_type, op).unwrap();
            reduce_into(&mut other, &first, data_type, op).unwrap();
            assert_eq!(one, other, "{op} of {data_type}");
        }
    }
}

/// Checks elements that are reduced over so many ranks.
fn check_finished(data_type: DataType, elements: &[u64], ranks: u32) {
    for &op in ReduceOp::ALL {
        let mut out = at(1, &oracle::bytes(data_type, elements.iter().copied()));
        finish(&mut out[1..], data_type, op, ranks).unwrap();
        for (&bits, got) in elements.iter().zip(read(data_type, &out[1..])) {
            let expected = oracle::finish(data_type, op, bits, ranks);
            assert_eq!(
                got, expected,
                "{op} of {bits:x} over {ranks} in {data_type} is {expected:x}, not {got:x}"
            );
        }
    }
}

#[test]
fn averages_of_every_type_are_the_oracles() {
    for &data_type in DataType::ALL {
        let every: Vec<u64> = match data_type.size() {
            1 | 2 => (0..1 << (8 * data_type.size())).collect(),
            _ => special(data_type),
        };
        for ranks in [1, 2, 3, 7, 200, 65_536, u32::MAX] {
            check_finished(data_type, &every, ranks);
        }
    }
    let mut out = 9_i32.to_ne_bytes();
    finish(&mut out, DataType::I32, ReduceOp::Avg, 0).unwrap();
    assert_eq!(out, 9_i32.to_ne_bytes());
}

#[test]
fn lengths_that_differ_are_refused_and_nothing_is_written() {
    for &data_type in DataType::ALL {
        let mut out = [7; 16];
        assert_eq!(
            reduce_into(&mut out, &[1; 8], data_type, ReduceOp::Sum),
            Err(ReduceError::LengthsDiffer { left: 16, right: 8 })
        );
        assert_eq!(
            reduce(&mut out, &[1; 16], &[1; 8], data_type, ReduceOp::Sum),
            Err(ReduceError::LengthsDiffer { left: 16, right: 8 })
        );
        assert_eq!(
            reduce(&mut out, &[1; 8], &[1; 8], data_type, ReduceOp::Sum),
            Err(ReduceError::LengthsDiffer { left: 16, right: 8 })
        );
        assert_eq!(out, [7; 16]);
    }
}

#[test]
fn a_length_inside_an_element_is_refused_and_nothing_is_written() {
    let mut out = [7; 7];
    for &data_type in DataType::ALL.iter().filter(|data_type| data_type.size() > 1) {
        let refused = Err(ReduceError::PartialElement { bytes: 7, data_type });
        assert_eq!(reduce_into(&mut out, &[1; 7], data_type, ReduceOp::Sum), refused);
        assert_eq!(reduce(&mut out, &[1; 7], &[1; 7], data_type, ReduceOp::Sum), refused);
        assert_eq!(finish(&mut out, data_type, ReduceOp::Avg, 2), refused);
    }
    assert_eq!(out, [7; 7]);
}

#[test]
fn errors_say_what_to_do() {
    insta::assert_snapshot!(
        [
            ReduceError::LengthsDiffer { left: 8, right: 4 },
            ReduceError::PartialElement { bytes: 7, data_type: DataType::F16 },
            ReduceError::TooManyElements { count: usize::MAX, data_type: DataType::F32 },
        ]
        .map(|error| error.to_string())
        .join("\n"),
        @r"
        operands of 8 and 4 bytes cannot be reduced; pass ranges of one length
        7 bytes end inside a half element of 2 bytes; pass whole elements
        18446744073709551615 float elements are more bytes than one buffer can have (9223372036854775807); split the operation
        "
    );
}

/// Where an operand starts within its allocation: every misalignment of every element type.
const SHIFTS: std::ops::Range<usize> = 0..8;

fn at(shift: usize, bytes: &[u8]) -> Vec<u8> {
    [vec![0xa5; shift], bytes.to_vec()].concat()
}

/// Bits of which many pairs are near each other, so that sums of floats round and cancel.
fn element() -> impl Strategy<Value = u64> {
    let near = any::<[u8; 8]>().prop_map(|[a, b, c, ..]| {
        let [a, b, c] = [a, b, c].map(u64::from);
        0x3f8c_3c00_3f80_3ff0 ^ a ^ b << 17 ^ c << 48 ^ a << 55
    });
    prop_oneof![any::<u64>(), near]
}

proptest! {
    #[test]
    fn every_type_and_operation_is_the_oracles_at_any_length_and_alignment(
        data_type in prop::sample::select(DataType::ALL),
        op in prop::sample::select(ReduceOp::ALL),
        pairs in prop::collection::vec((element(), element()), 0..600),
        out_shift in SHIFTS,
        left_shift in SHIFTS,
        right_shift in SHIFTS,
    ) {
        let mask = u64::MAX >> (64 - 8 * data_type.size());
        let (left, right): (Vec<u64>, Vec<u64>) = pairs.iter().map(|(a, b)| (a & mask, b & mask)).unzip();
        let operands = [&left, &right].map(|elements| oracle::bytes(data_type, elements.iter().copied()));
        let mut in_place = at(out_shift, &operands[0]);
        let (left_bytes, right_bytes) = (at(left_shift, &operands[0]), at(right_shift, &operands[1]));
        reduce_into(&mut in_place[out_shift..], &right_bytes[right_shift..], data_type, op).unwrap();
        assert_combined(data_type, op, &left, &right, &in_place[out_shift..]);
        let mut apart = at(out_shift, &vec![0; operands[0].len()]);
        reduce(&mut apart[out_shift..], &left_bytes[left_shift..], &right_bytes[right_shift..], data_type, op)
            .unwrap();
        prop_assert_eq!(&apart, &in_place);
        prop_assert!(apart[..out_shift].iter().all(|&byte| byte == 0xa5));
    }

    #[test]
    fn sums_and_products_of_floats_commute(
        data_type in prop::sample::select(&FLOATS[..]),
        pairs in prop::collection::vec((element(), element()), 0..50),
    ) {
        let (left, right): (Vec<u64>, Vec<u64>) = pairs.into_iter().unzip();
        let [left, right] = [left, right].map(|elements| oracle::bytes(data_type, elements));
        for op in [ReduceOp::Sum, ReduceOp::Prod] {
            let (mut one, mut other) = (left.clone(), right.clone());
            reduce_into(&mut one, &right, data_type, op).unwrap();
            reduce_into(&mut other, &left, data_type, op).unwrap();
            prop_assert_eq!(one, other);
        }
    }
}
