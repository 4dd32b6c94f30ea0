//! The arithmetic on one pair of elements, as the numerics contract has it; no branches, so that loops become vectors.

use ::half::{bf16, f16};
use bytemuck::Pod;

use super::extreme::{brain, double, half, single};
use super::level::Level;
use super::{Job, halves, tiles};

/// An element that can be reduced.
pub(super) trait Number: Pod {
    /// What it is computed in.
    type Wide: Pod;

    fn widen(self) -> Self::Wide;

    /// Rounds, and makes all that is not a number the same bits.
    fn narrow(wide: Self::Wide) -> Self;

    /// The sum over so many ranks, of which there is at least one, as their average.
    fn divided(wide: Self::Wide, ranks: u32) -> Self::Wide;

    /// Carries a job out: `fold` makes one of two, from the left to the right, and `last` what is stored.
    #[inline(always)]
    fn reduce<V: Level>(
        level: V,
        job: &mut Job<'_>,
        fold: impl Fn(Self::Wide, Self::Wide) -> Self::Wide + Copy,
        last: impl Fn(Self::Wide) -> Self::Wide + Copy,
    ) {
        tiles::reduce::<Self, V>(level, job, fold, last);
    }

    /// Makes `out` of two operands, all of one length in whole elements. [`Number::reduce`] does the same with a job of
    /// two; a caller that never has another kind of job calls this, because each loop that could run is compiled for each
    /// element, operation and kind of processor.
    #[inline(always)]
    fn pair<V: Level>(
        _: V,
        out: &mut [u8],
        [left, right]: [&[u8]; 2],
        fold: impl Fn(Self::Wide, Self::Wide) -> Self::Wide,
        last: impl Fn(Self::Wide) -> Self::Wide,
    ) {
        tiles::apart::<Self>(out, left, right, fold, last);
    }
}

/// Division is in floating point where that is exact, since it becomes vectors: a quotient that is not whole differs from
/// the next whole number by at least one part in what is divided, more than is rounded away.
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

    /// To nearest, ties to even. `bf16::from_f32` does the same with branches, at half the speed.
    #[inline(always)]
    fn narrow(wide: f32) -> Self {
        let bits = wide.to_bits();
        let nearest = (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16;
        Self::from_bits(if single::is_nan(bits) { brain::NAN } else { nearest })
    }

    #[inline(always)]
    fn divided(wide: f32, ranks: u32) -> f32 {
        wide / ranks as f32
    }
}

/// The bits of an `f16` and an `f32` differ in the bias of the exponent, 112, and in the places of the fraction, 13.
impl Number for f16 {
    type Wide = f32;

    /// The exponent is mended by a product, which is exact and takes subnormals along.
    #[inline(always)]
    fn widen(self) -> f32 {
        const MENDS_BIAS: f32 = f32::from_bits((127 + 112) << 23);
        let bits = u32::from(self.to_bits());
        let (sign, magnitude) = (bits & 0x8000, bits & 0x7fff);
        let finite = (f32::from_bits(magnitude << 13) * MENDS_BIAS).to_bits();
        let not_finite = if magnitude > 0x7bff { single::INFINITY } else { 0 };
        f32::from_bits(finite | not_finite | sign << 16)
    }

    /// To nearest, ties to even; subnormals are rounded by a sum that moves their last place to the end of the fraction.
    #[inline(always)]
    fn narrow(wide: f32) -> Self {
        const LEAST_NORMAL: u32 = (127 - 14) << 23;
        const OVERFLOWS: u32 = (127 + 16) << 23;
        const MOVES: f32 = f32::from_bits((127 - 1) << 23);
        let (sign, magnitude) = (wide.to_bits() >> 16 & 0x8000, wide.to_bits() & 0x7fff_ffff);
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

    /// By instructions that convert, where the processor has them.
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
        halves::apart(level, out, operands, fold, last);
    }
}
