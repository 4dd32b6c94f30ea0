//! The inputs of every type and operation, and their exact results.
//!
//! Integers wrap, so that every input is good. Of floats, sums take whole numbers so small that every sum is whole and
//! exact; products take powers of two, but for the one rank that has all digits; largest and smallest any number. Sums
//! that nobody checks are rounded, as those of most programs are: processors, and emulators of them more so, may take
//! another time for sums that are not.

use super::Sample;
use half::{bf16, f16};
use rdma_collective::collective::{self, ReduceOp};

/// A type of element, and what computes exactly in its stead.
pub trait Element: collective::Element + Default {
    /// Holds every input and every result on the way, or what counts of it.
    type Wide: Copy;

    /// Returns the input of `sample`, which the type can represent.
    fn input(sample: Sample) -> Self::Wide;

    /// Two of them as one.
    fn combine(op: ReduceOp, left: Self::Wide, right: Self::Wide) -> Self::Wide;

    /// The exact result as an element.
    fn narrow(wide: Self::Wide) -> Self;

    /// The average, from the exact sum.
    fn average(sum: Self::Wide, ranks: usize) -> Self;

    /// Every bit of the element.
    fn bits(self) -> u64 {
        let mut bits = [0; 8];
        let bytes = Self::as_bytes(std::slice::from_ref(&self));
        bits[..bytes.len()].copy_from_slice(bytes);
        u64::from_ne_bytes(bits)
    }
}

macro_rules! integers {
    ($($integer:ty, $wide:ty);*) => {$(
        impl Element for $integer {
            type Wide = $wide;

            fn input(sample: Sample) -> $wide {
                // In all of its bits, with the sign that it then has.
                <$wide>::from(sample.mixed as $integer)
            }

            fn combine(op: ReduceOp, left: $wide, right: $wide) -> $wide {
                match op {
                    ReduceOp::Prod => left.wrapping_mul(right),
                    ReduceOp::Max => left.max(right),
                    ReduceOp::Min => left.min(right),
                    _ => left.wrapping_add(right),
                }
            }

            fn narrow(wide: $wide) -> Self {
                wide as Self
            }

            fn average(sum: $wide, ranks: usize) -> Self {
                // The sum wraps in the element before it is divided.
                (<$wide>::from(sum as Self) / ranks as $wide) as Self
            }
        }
    )*};
}

integers!(i8, i64; u8, u64; i16, i64; u16, u64; i32, i64; u32, u64; i64, i64; u64, u64);

macro_rules! floats {
    ($($float:ty, digits $digits:literal, exponent $exponent:literal, $narrow:expr);*) => {$(
        impl Element for $float {
            type Wide = f64;

            fn input(sample: Sample) -> f64 {
                Format { digits: $digits, exponent_max: $exponent }.input(sample)
            }

            fn combine(op: ReduceOp, left: f64, right: f64) -> f64 {
                match op {
                    ReduceOp::Prod => left * right,
                    ReduceOp::Max => if left.total_cmp(&right).is_gt() { left } else { right },
                    ReduceOp::Min => if left.total_cmp(&right).is_lt() { left } else { right },
                    _ => left + right,
                }
            }

            fn narrow(wide: f64) -> Self {
                $narrow(wide)
            }

            fn average(sum: f64, ranks: usize) -> Self {
                $narrow(sum / ranks as f64)
            }
        }
    )*};
}

floats!(
    f16, digits 11, exponent 15, f16::from_f64;
    bf16, digits 8, exponent 127, bf16::from_f64;
    f32, digits 24, exponent 127, |wide| wide as f32;
    f64, digits 53, exponent 1023, |wide| wide
);

/// The properties of a floating-point format that matter here.
#[derive(Debug, Clone, Copy)]
struct Format {
    /// Bits of a number, with the first.
    digits: u32,
    /// Exponent of the largest numbers; the smallest normal numbers have 1 less this one.
    exponent_max: i64,
}

impl Format {
    fn input(self, Sample { ranks, op, mixed, exact, chosen }: Sample) -> f64 {
        let ranks = i64::try_from(ranks.max(1)).unwrap_or(i64::MAX);
        match op {
            ReduceOp::Prod => {
                // Every product on the way is normal.
                let exponent = scaled(mixed, (self.exponent_max - 1) / ranks);
                self.number(mixed, exponent, chosen)
            }
            ReduceOp::Max | ReduceOp::Min => self.number(mixed, scaled(mixed, self.exponent_max - 1), true),
            _ if !exact => self.number(mixed, scaled(mixed, 3), true),
            _ => scaled(mixed, ((1 << self.digits) / ranks).max(1)) as f64,
        }
    }

    /// A normal number of either sign, with all digits or as a power of two.
    fn number(self, mixed: u64, exponent: i64, all_digits: bool) -> f64 {
        // The digits are other bits of the mix than the exponent.
        let fraction = mixed.rotate_left(23) & ((1 << (self.digits - 1)) - 1);
        let one = 1_u64 << (self.digits - 1);
        let significand = if all_digits { (one | fraction) as f64 / one as f64 } else { 1.0 };
        let sign = if mixed & 1 == 1 { -1.0 } else { 1.0 };
        sign * significand * 2_f64.powi(exponent as i32)
    }
}

/// A whole number between `bound` and its negative, by the upper bits of the mix.
fn scaled(mixed: u64, bound: i64) -> i64 {
    let span = 2 * i128::from(bound) + 1;
    ((i128::from(mixed) * span) >> 64) as i64 - bound
}
