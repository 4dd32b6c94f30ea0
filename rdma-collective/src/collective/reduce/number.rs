//! The arithmetic on one pair of elements, as the numerics contract has it; no branches, so that the loops in
//! `kernels` become vectors. Half precision, which needs whole blocks for that, is in `half`.

use ::half::bf16;
use bytemuck::Pod;

use super::extreme::{brain, double, single};

/// An element that can be reduced. What is not a number is always the same bits, whatever was put in.
pub(super) trait Number: Pod {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn maximum(self, other: Self) -> Self;
    fn minimum(self, other: Self) -> Self;
    /// The sum over so many ranks, of which there is at least one, as their average.
    fn divided(self, ranks: u32) -> Self;
}

/// Division is in floating point where that is exact, since it becomes vectors: a quotient that is not whole differs from
/// the next whole number by at least one part in what is divided, more than is rounded away.
macro_rules! integers {
    ($($integer:ty, divided in $divided:ty);*) => {$(
        impl Number for $integer {
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            fn maximum(self, other: Self) -> Self {
                self.max(other)
            }

            fn minimum(self, other: Self) -> Self {
                self.min(other)
            }

            fn divided(self, ranks: u32) -> Self {
                (self as $divided / ranks as $divided) as Self
            }
        }
    )*};
}

integers!(
    i8, divided in f32; u8, divided in f32; i16, divided in f32; u16, divided in f32;
    i32, divided in f64; u32, divided in f64; i64, divided in i64; u64, divided in u64
);

macro_rules! floats {
    ($($float:ty, $format:ident);*) => {$(
        impl Number for $float {
            fn sum(self, other: Self) -> Self {
                one_nan!(self + other, $format)
            }

            fn product(self, other: Self) -> Self {
                one_nan!(self * other, $format)
            }

            fn maximum(self, other: Self) -> Self {
                Self::from_bits($format::maximum(self.to_bits(), other.to_bits()))
            }

            fn minimum(self, other: Self) -> Self {
                Self::from_bits($format::minimum(self.to_bits(), other.to_bits()))
            }

            fn divided(self, ranks: u32) -> Self {
                one_nan!(self / ranks as Self, $format)
            }
        }
    )*};
}

macro_rules! one_nan {
    ($value:expr, $format:ident) => {{
        let value = $value;
        if $format::is_nan(value.to_bits()) { Self::from_bits($format::NAN) } else { value }
    }};
}

floats!(f32, single; f64, double);

impl Number for bf16 {
    fn sum(self, other: Self) -> Self {
        rounded(widened(self) + widened(other))
    }

    fn product(self, other: Self) -> Self {
        rounded(widened(self) * widened(other))
    }

    fn maximum(self, other: Self) -> Self {
        Self::from_bits(brain::maximum(self.to_bits(), other.to_bits()))
    }

    fn minimum(self, other: Self) -> Self {
        Self::from_bits(brain::minimum(self.to_bits(), other.to_bits()))
    }

    fn divided(self, ranks: u32) -> Self {
        rounded(widened(self) / ranks as f32)
    }
}

fn widened(value: bf16) -> f32 {
    f32::from_bits(u32::from(value.to_bits()) << 16)
}

/// To nearest, ties to even. `bf16::from_f32` does the same with branches, at half the speed.
fn rounded(value: f32) -> bf16 {
    let bits = value.to_bits();
    let nearest = (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16;
    bf16::from_bits(if single::is_nan(bits) { brain::NAN } else { nearest })
}
