//! The arithmetic on one pair of elements, as `docs/numerics.md` specifies it.
//!
//! No function branches, because the compiler turns a loop into vectors only if its body is straight-line code.

use ::half::{bf16, f16};
use bytemuck::Pod;

use super::extreme::{brain, double, half, single};
use super::level::Level;
use super::{Job, halves, tiles};

/// An element that can be reduced.
pub(super) trait Number: Pod {
    /// The type in which elements are added and multiplied: `f32` for half precision, otherwise the type itself.
    type Wide: Pod;

    fn widen(self) -> Self::Wide;

    /// Rounds to the element type, and replaces every NaN by one bit pattern: otherwise the bits of a NaN would
    /// depend on the order of ranks.
    fn narrow(wide: Self::Wide) -> Self;

    /// The average of a sum over `ranks` ranks, at least 1.
    fn divided(wide: Self::Wide, ranks: u32) -> Self::Wide;

    /// Carries a job out: `fold` combines two operands, from the left to the right, and `last` makes the result that
    /// is stored.
    #[inline(always)]
    fn reduce<V: Level>(
        level: V,
        job: &mut Job<'_>,
        fold: impl Fn(Self::Wide, Self::Wide) -> Self::Wide + Copy,
        last: impl Fn(Self::Wide) -> Self::Wide + Copy,
    ) {
        tiles::reduce::<Self, V>(level, job, fold, last);
    }

    /// Makes `out` of two operands of one length in whole elements. [`Number::reduce`] does so with a job of two. A
    /// caller that never has another kind of job calls this, because the compiler instantiates each loop that could run
    /// for each element, operation and kind of processor.
    #[inline(always)]
    fn pair<V: Level>(
        _: V,
        out: &mut [u8],
        [left, right]: [&[u8]; 2],
        fold: impl Fn(Self::Wide, Self::Wide) -> Self::Wide,
        last: impl Fn(Self::Wide) -> Self::Wide,
    ) {
        tiles::fold_pair::<Self>(out, left, right, fold, last);
    }
}

/// Integers are divided in floating point where the result is exact, because processors have no vectors of integer
/// division. It is exact where the fraction of the float holds the integer: a quotient that is not whole is at least
/// `1 / dividend` (relative) away from the next whole number, more than rounding moves it, so that truncation gives
/// the right integer.
macro_rules! integers {
    ($($integer:ty, divided in $divided:ty);*) => {$(
        impl Number for $integer {
            type Wide = Self;

            #[inline(always)]
            fn widen(self) -> Self {
                self
            }

            #[inline(always)]
            fn narrow(wide: Self) -> Self {
                wide
            }

            #[inline(always)]
            fn divided(wide: Self, ranks: u32) -> Self {
                (wide as $divided / ranks as $divided) as Self
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
            type Wide = Self;

            #[inline(always)]
            fn widen(self) -> Self {
                self
            }

            #[inline(always)]
            fn narrow(wide: Self) -> Self {
                if wide.is_nan() { Self::from_bits($format::NAN) } else { wide }
            }

            #[inline(always)]
            fn divided(wide: Self, ranks: u32) -> Self {
                wide / ranks as Self
            }
        }
    )*};
}

floats!(f32, single; f64, double);

impl Number for bf16 {
    type Wide = f32;

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    /// Rounds to nearest, ties to even. `bf16::from_f32` gives the same bits with branches, at half the speed.
    #[inline(always)]
    fn narrow(wide: f32) -> Self {
        let bits = wide.to_bits();
        // Half of the last place, less 1, plus the last place itself: a tie carries only if the last place is odd. A
        // carry out of the fraction moves into the exponent, which is the right result, infinity included.
        let nearest = (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16;
        Self::from_bits(if single::is_nan(bits) { brain::NAN } else { nearest })
    }

    #[inline(always)]
    fn divided(wide: f32, ranks: u32) -> f32 {
        wide / ranks as f32
    }
}

/// `f16` differs from `f32` in the bias of the exponent, by 112, and in the bits of the fraction, by 13.
impl Number for f16 {
    type Wide = f32;

    /// Shifts the bits into place and corrects the bias by a product with `2^112`, which is exact and normalises
    /// subnormals, too.
    #[inline(always)]
    fn widen(self) -> f32 {
        const MENDS_BIAS: f32 = f32::from_bits((127 + 112) << 23);
        let bits = u32::from(self.to_bits());
        let (sign, magnitude) = (bits & 0x8000, bits & 0x7fff);
        let finite = (f32::from_bits(magnitude << 13) * MENDS_BIAS).to_bits();
        // Infinity and NaN keep the largest exponent; OR-ing it in leaves the fraction of a NaN as it is.
        let not_finite = if magnitude > 0x7bff { single::INFINITY } else { 0 };
        f32::from_bits(finite | not_finite | sign << 16)
    }

    /// Rounds to nearest, ties to even. Subnormals are rounded by adding `2^-1`, whose last place in `f32` is the
    /// last place of a subnormal `f16`, so that the processor rounds at the right bit.
    #[inline(always)]
    fn narrow(wide: f32) -> Self {
        const LEAST_NORMAL: u32 = (127 - 14) << 23;
        const OVERFLOWS: u32 = (127 + 16) << 23;
        const MOVES: f32 = f32::from_bits((127 - 1) << 23);
        let (sign, magnitude) = (wide.to_bits() >> 16 & 0x8000, wide.to_bits() & 0x7fff_ffff);
        // As for `bf16`: half of the last place less 1, plus the last place, after the bias is corrected.
        let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + (magnitude >> 13 & 1)) >> 13;
        let subnormal = (f32::from_bits(magnitude) + MOVES).to_bits().wrapping_sub(MOVES.to_bits());
        let finite = if magnitude < LEAST_NORMAL { subnormal } else { normal };
        let number = if magnitude < OVERFLOWS { finite } else { u32::from(half::INFINITY) };
        Self::from_bits(if single::is_nan(magnitude) { half::NAN } else { (number | sign) as u16 })
    }

    #[inline(always)]
    fn divided(wide: f32, ranks: u32) -> f32 {
        wide / ranks as f32
    }

    /// Half precision has a loop of its own, because the compiler does not use the conversion instructions by itself.
    #[inline(always)]
    fn reduce<V: Level>(
        level: V,
        job: &mut Job<'_>,
        fold: impl Fn(f32, f32) -> f32 + Copy,
        last: impl Fn(f32) -> f32 + Copy,
    ) {
        halves::reduce(level, job, fold, last);
    }

    #[inline(always)]
    fn pair<V: Level>(
        level: V,
        out: &mut [u8],
        operands: [&[u8]; 2],
        fold: impl Fn(f32, f32) -> f32,
        last: impl Fn(f32) -> f32,
    ) {
        halves::fold_pair(level, out, operands, fold, last);
    }
}
