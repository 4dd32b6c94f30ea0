//! Inputs whose exact sum every order of adding gives, and the count of elements that differ from it; no I/O.
//!
//! Each input is a whole number, so small that the sum over all ranks is exact in the element's type. A correct
//! all-reduce then gives that sum bit for bit, whatever ring it took: the tolerance is 0.

use half::f16;

/// What the inputs of one checked operation follow from; the same on every rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inputs {
    /// Ranks that add up.
    pub ranks: usize,
    /// Which operation: no two that follow each other have the same inputs.
    pub round: u64,
}

/// A type of element.
pub trait Element: Copy + Send + Sync + 'static {
    /// Whole numbers up to this one, either side of 0, are exact.
    const EXACT_MAX: i32;

    /// The number as an element.
    fn whole(number: i32) -> Self;

    /// Every bit of the element.
    fn bits(self) -> u32;
}

impl Element for f32 {
    const EXACT_MAX: i32 = 1 << 24;

    fn whole(number: i32) -> Self {
        number as f32
    }

    fn bits(self) -> u32 {
        self.to_bits()
    }
}

impl Element for f16 {
    const EXACT_MAX: i32 = 1 << 11;

    fn whole(number: i32) -> Self {
        f16::from_f32(number as f32)
    }

    fn bits(self) -> u32 {
        u32::from(self.to_bits())
    }
}

impl Inputs {
    /// What `rank` puts in.
    pub fn fill<T: Element>(&self, rank: usize, buffer: &mut [T]) {
        let bound = self.bound::<T>();
        for (index, element) in buffer.iter_mut().enumerate() {
            *element = T::whole(self.number(rank, index, bound));
        }
    }

    /// How many elements are not the exact sum.
    pub fn wrong<T: Element>(&self, buffer: &[T]) -> u64 {
        let bound = self.bound::<T>();
        let sum = |index| (0..self.ranks).map(|rank| self.number(rank, index, bound)).sum();
        buffer
            .iter()
            .enumerate()
            .filter(|&(index, element)| element.bits() != T::whole(sum(index)).bits())
            .count() as u64
    }

    /// Inputs lie between this and its negative.
    fn bound<T: Element>(&self) -> i32 {
        (T::EXACT_MAX / i32::try_from(self.ranks.max(1)).unwrap_or(i32::MAX)).max(1)
    }

    /// One input: a mix of where it is, so that a byte from another place or time is another number.
    fn number(&self, rank: usize, index: usize, bound: i32) -> i32 {
        let mut mixed = (index as u64) ^ (rank as u64).rotate_left(40) ^ self.round.rotate_left(52);
        mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let span = 2 * i64::from(bound) + 1;
        let scaled = ((mixed >> 32) as i64 * span) >> 32;
        (scaled - i64::from(bound)) as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Adds in the order given by `first`: rank by rank from there, rounding at every step as a ring does.
    fn ring<T: Element>(inputs: Inputs, count: usize, first: usize, add: fn(T, T) -> T) -> Vec<T> {
        let mut sum = vec![T::whole(0); count];
        inputs.fill(first % inputs.ranks, &mut sum);
        for step in 1..inputs.ranks {
            let mut next = vec![T::whole(0); count];
            inputs.fill((first + step) % inputs.ranks, &mut next);
            sum.iter_mut().zip(next).for_each(|(sum, next)| *sum = add(*sum, next));
        }
        sum
    }

    proptest! {
        #[test]
        fn every_order_of_adding_gives_the_exact_sum(ranks in 1usize..=256, round: u64, first in 0usize..256) {
            let inputs = Inputs { ranks, round };
            prop_assert_eq!(inputs.wrong(&ring::<f32>(inputs, 100, first, |a, b| a + b)), 0);
            let half = ring::<f16>(inputs, 100, first, |a, b| f16::from_f32(a.to_f32() + b.to_f32()));
            prop_assert_eq!(inputs.wrong(&half), 0);
        }

        #[test]
        fn any_flipped_bit_is_found(ranks in 1usize..=8, at in 0usize..64, bit in 0u32..32) {
            let inputs = Inputs { ranks, round: 7 };
            let mut sum = ring::<f32>(inputs, 64, 0, |a, b| a + b);
            sum[at] = f32::from_bits(sum[at].to_bits() ^ (1 << bit));
            prop_assert_eq!(inputs.wrong(&sum), 1);
        }
    }

    #[test]
    fn another_round_a_missing_rank_and_a_shift_are_found() {
        let inputs = Inputs { ranks: 4, round: 1 };
        let right = ring::<f32>(inputs, 1000, 0, |a, b| a + b);
        assert_eq!(inputs.wrong(&right), 0);
        assert!(Inputs { round: 2, ..inputs }.wrong(&right) > 990);
        assert!(Inputs { ranks: 3, ..inputs }.wrong(&right) > 990);
        assert!(inputs.wrong(&right[1..]) > 990);
        assert_eq!(inputs.wrong::<f32>(&[]), 0);
    }

    #[test]
    fn the_inputs_use_their_range() {
        for ranks in [1, 2, 256] {
            let inputs = Inputs { ranks, round: 0 };
            let mut values = vec![f16::ZERO; 10_000];
            inputs.fill(0, &mut values);
            let bound = 2048.0 / ranks as f32;
            assert!(values.iter().all(|value| value.to_f32().abs() <= bound));
            assert!(values.iter().any(|value| value.to_f32() > bound * 0.9));
            assert!(values.iter().any(|value| value.to_f32() < -bound * 0.9));
        }
    }
}
