//! The kernels against scalar oracles that share no code with them.

use ::half::f16;
use proptest::prelude::*;

use super::*;
use crate::collective::Element;

/// The value of a half by the definition of its bits; exact.
fn value(bits: u16) -> f64 {
    let (sign, exponent, fraction) = (bits >> 15, i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2_f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
    };
    if sign == 1 { -magnitude } else { magnitude }
}

/// The half nearest to an exact `sum`, ties to even: by bisection over the positive halves.
fn nearest(sum: f64) -> u16 {
    let (sign, magnitude) = (u16::from(sum.is_sign_negative()) << 15, sum.abs());
    // Beyond half a step over the largest half, rounding goes to infinity.
    if magnitude >= 65520.0 {
        return sign | 0x7c00;
    }
    let (mut low, mut high) = (0_u16, 0x7c00);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if value(middle) <= magnitude {
            low = middle;
        } else {
            high = middle;
        }
    }
    let above = if high == 0x7c00 { 65536.0 } else { value(high) };
    let (down, up) = (magnitude - value(low), above - magnitude);
    sign | if up < down || (up == down && low % 2 == 1) { high } else { low }
}

fn assert_half_sum(a: u16, b: u16, got: u16) {
    let exact = value(a) + value(b);
    if exact.is_nan() {
        assert!(value(got).is_nan(), "{a:04x} + {b:04x} is not a number, not {got:04x}");
    } else {
        assert_eq!(got, nearest(exact), "{a:04x} + {b:04x}");
    }
}

/// Zeros, the edges of subnormals and of normals, ones, ties, the largest, infinities and NaNs; both signs.
fn special_halves() -> Vec<u16> {
    let positive = [
        0x0000, 0x0001, 0x0002, 0x0003, 0x01ff, 0x0200, 0x03fe, 0x03ff, 0x0400, 0x0401, 0x07ff, 0x0800,
        0x1000, 0x1001, 0x13ff, 0x1400, 0x3555, 0x3800, 0x3bff, 0x3c00, 0x3c01, 0x3c02, 0x4000, 0x4248,
        0x4bff, 0x4c00, 0x6400, 0x6800, 0x77ff, 0x7800, 0x7bfe, 0x7bff, 0x7c00, 0x7c01, 0x7dff, 0x7e00,
        0x7fff,
    ];
    positive.into_iter().flat_map(|bits| [bits, bits | 0x8000]).collect()
}

#[test]
fn every_half_plus_every_special_half_is_correctly_rounded() {
    let every: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    for special in special_halves() {
        let mut out = vec![f16::from_bits(special); every.len()];
        reduce_into(f16::as_bytes_mut(&mut out), f16::as_bytes(&every), DataType::F16, ReduceOp::Sum)
            .unwrap();
        for (&other, got) in every.iter().zip(out) {
            assert_half_sum(special, other.to_bits(), got.to_bits());
        }
    }
}

#[test]
fn single_precision_keeps_infinities_nans_signed_zeros_and_subnormals() {
    let specials = [0.0, -0.0, f32::MIN_POSITIVE / 2.0, f32::MAX, f32::MIN, f32::INFINITY, -f32::INFINITY];
    for a in specials {
        for b in specials.into_iter().chain([f32::NAN]) {
            let mut out = a.to_ne_bytes();
            reduce_into(&mut out, &b.to_ne_bytes(), DataType::F32, ReduceOp::Sum).unwrap();
            let (got, exact) = (f32::from_ne_bytes(out), f64::from(a) + f64::from(b));
            if exact.is_nan() {
                assert!(got.is_nan(), "{a} + {b}");
            } else {
                assert_eq!(got.to_bits(), (exact as f32).to_bits(), "{a} + {b}");
            }
        }
    }
}

#[test]
fn lengths_that_differ_are_refused_and_nothing_is_written() {
    for &data_type in DataType::ALL {
        let mut out = [7; 16];
        assert_eq!(
            reduce_into(&mut out, &[1; 12], data_type, ReduceOp::Sum),
            Err(ReduceError::LengthsDiffer { left: 16, right: 12 })
        );
        assert_eq!(
            reduce(&mut out, &[1; 16], &[1; 12], data_type, ReduceOp::Sum),
            Err(ReduceError::LengthsDiffer { left: 16, right: 12 })
        );
        assert_eq!(
            reduce(&mut out, &[1; 12], &[1; 12], data_type, ReduceOp::Sum),
            Err(ReduceError::LengthsDiffer { left: 16, right: 12 })
        );
        assert_eq!(out, [7; 16]);
    }
}

#[test]
fn a_length_inside_an_element_is_refused_and_nothing_is_written() {
    let mut out = [7; 7];
    for &data_type in DataType::ALL {
        let refused = Err(ReduceError::PartialElement { bytes: 7, data_type });
        assert_eq!(reduce_into(&mut out, &[1; 7], data_type, ReduceOp::Sum), refused);
        assert_eq!(reduce(&mut out, &[1; 7], &[1; 7], data_type, ReduceOp::Sum), refused);
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

/// Where an operand starts within its allocation: every misalignment of both element types.
const SHIFTS: std::ops::Range<usize> = 0..4;

/// The bits of one finite single or two finite halves: the payload of a NaN is not specified.
fn finite() -> impl Strategy<Value = u32> {
    any::<u32>().prop_map(|bits| bits & 0xbbff_bbff)
}

fn at(shift: usize, bytes: &[u8]) -> Vec<u8> {
    [vec![0xa5; shift], bytes.to_vec()].concat()
}

proptest! {
    #[test]
    fn single_precision_is_the_scalar_sum_at_any_length_and_alignment(
        pairs in prop::collection::vec((any::<f32>(), any::<f32>()), 0..200),
        out_shift in SHIFTS,
        source_shift in SHIFTS,
    ) {
        let (left, right): (Vec<f32>, Vec<f32>) = pairs.iter().copied().unzip();
        let mut out = at(out_shift, Element::as_bytes(&left));
        let source = at(source_shift, Element::as_bytes(&right));
        reduce_into(&mut out[out_shift..], &source[source_shift..], DataType::F32, ReduceOp::Sum).unwrap();
        let sums = out[out_shift..].chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap()));
        for ((left, right), sum) in pairs.iter().zip(sums) {
            prop_assert!(sum.to_bits() == (left + right).to_bits() || (sum.is_nan() && (left + right).is_nan()));
        }
        prop_assert!(out[..out_shift].iter().all(|&b| b == 0xa5));
    }

    #[test]
    fn half_precision_is_correctly_rounded_at_any_length_and_alignment(
        pairs in prop::collection::vec((any::<u16>(), any::<u16>()), 0..300),
        out_shift in SHIFTS,
        source_shift in SHIFTS,
    ) {
        let (left, right): (Vec<f16>, Vec<f16>) =
            pairs.iter().map(|&(a, b)| (f16::from_bits(a), f16::from_bits(b))).unzip();
        let mut out = at(out_shift, Element::as_bytes(&left));
        let source = at(source_shift, Element::as_bytes(&right));
        reduce_into(&mut out[out_shift..], &source[source_shift..], DataType::F16, ReduceOp::Sum).unwrap();
        for (&(a, b), sum) in pairs.iter().zip(out[out_shift..].chunks_exact(2)) {
            assert_half_sum(a, b, u16::from_ne_bytes(sum.try_into().unwrap()));
        }
    }

    #[test]
    fn out_of_place_gives_the_bytes_of_in_place(
        operands in prop::collection::vec((finite(), finite()), 0..200),
    ) {
        let (left, right): (Vec<u32>, Vec<u32>) = operands.into_iter().unzip();
        let (left, right) = (bytemuck::cast_slice(&left), bytemuck::cast_slice(&right));
        for &data_type in DataType::ALL {
            let mut expected = left.to_vec();
            reduce_into(&mut expected, right, data_type, ReduceOp::Sum).unwrap();
            let mut out = vec![0; left.len()];
            reduce(&mut out, left, right, data_type, ReduceOp::Sum).unwrap();
            prop_assert_eq!(out, expected);
        }
    }
}
