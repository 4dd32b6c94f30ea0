//! The sizes that one run visits, from `-b`, `-e`, `-i` and `-f`; how a size is written is the parent's.

use super::format_size;
use thiserror::Error;

/// How one size follows another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Add so many bytes.
    Bytes(u64),
    /// Multiply by so much.
    Factor(u64),
}

/// A sweep over sizes that is known to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sweep {
    first: u64,
    last: u64,
    step: Step,
}

/// Why a sweep cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SweepError {
    /// The first size is above the last.
    #[error(
        "the smallest size (-b {}) is above the largest (-e {}): raise -e or lower -b",
        format_size(*.first),
        format_size(*.last)
    )]
    Reversed {
        /// Value of `-b`.
        first: u64,
        /// Value of `-e`.
        last: u64,
    },
    /// The sizes would never reach the last one.
    #[error("a step of 0 bytes (-i 0) never reaches -e {}: give a step above 0, or a factor (-f 2)", format_size(*.last))]
    Endless {
        /// Value of `-e`.
        last: u64,
    },
    /// Multiplying 0 stays at 0.
    #[error("a factor (-f) never leaves size 0 (-b 0): start at 1 or more, or step by bytes (-i)")]
    ZeroTimesFactor,
    /// More sizes than anybody waits for.
    #[error("from -b {} to -e {} by {step} bytes is {sizes} sizes, more than {SIZES_MAX}: give a larger step (-i) or a factor (-f 2)",
        format_size(*.first), format_size(*.last))]
    TooMany {
        /// Value of `-b`.
        first: u64,
        /// Value of `-e`.
        last: u64,
        /// Value of `-i`.
        step: u64,
        /// How many sizes that makes.
        sizes: u64,
    },
}

/// The most sizes one run may visit.
pub const SIZES_MAX: u64 = 1 << 20;

impl Sweep {
    /// A sweep from `first` to at most `last`, both in bytes.
    ///
    /// As in nccl-tests, a factor of 0 or 1 means that the step in bytes counts.
    ///
    /// # Errors
    ///
    /// [`SweepError`] when `first` is above `last`, or when the steps would not end.
    pub fn new(first: u64, last: u64, step_bytes: u64, factor: u64) -> Result<Self, SweepError> {
        if first > last {
            return Err(SweepError::Reversed { first, last });
        }
        if factor > 1 {
            return match (first, last) {
                (0, 1..) => Err(SweepError::ZeroTimesFactor),
                _ => Ok(Self { first, last, step: Step::Factor(factor) }),
            };
        }
        if first == last {
            return Ok(Self { first, last, step: Step::Bytes(step_bytes) });
        }
        if step_bytes == 0 {
            return Err(SweepError::Endless { last });
        }
        let sizes = (last - first) / step_bytes + 1;
        if sizes > SIZES_MAX {
            return Err(SweepError::TooMany { first, last, step: step_bytes, sizes });
        }
        Ok(Self { first, last, step: Step::Bytes(step_bytes) })
    }

    /// The smallest size, in bytes.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The largest size that may be visited, in bytes.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// How one size follows another.
    pub fn step(&self) -> Step {
        self.step
    }

    /// The sizes in bytes, smallest first; at least one, at most [`SIZES_MAX`].
    pub fn sizes(&self) -> impl Iterator<Item = u64> + use<> {
        let Self { first, last, step } = *self;
        std::iter::successors(Some(first), move |&size| {
            let next = match step {
                Step::Bytes(bytes) => size.checked_add(bytes),
                Step::Factor(factor) => size.checked_mul(factor),
            };
            next.filter(|&next| next <= last && next > size)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::SIZE_MAX;
    use proptest::prelude::*;

    #[test]
    fn visits_the_sizes_nccl_tests_visits() {
        let by_factor: Vec<u64> = Sweep::new(8, 128, 1 << 20, 2).unwrap().sizes().collect();
        assert_eq!(by_factor, [8, 16, 32, 64, 128]);
        let by_bytes: Vec<u64> = Sweep::new(1000, 3500, 1000, 1).unwrap().sizes().collect();
        assert_eq!(by_bytes, [1000, 2000, 3000]);
        let one: Vec<u64> = Sweep::new(64, 64, 0, 1).unwrap().sizes().collect();
        assert_eq!(one, [64]);
    }

    #[test]
    fn a_smallest_size_above_the_largest_is_an_error() {
        let error = Sweep::new(1 << 30, 1 << 20, 1, 2).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the smallest size (-b 1G) is above the largest (-e 1M): raise -e or lower -b"
        );
    }

    #[test]
    fn sizes_that_overflow_end_the_sweep() {
        let sizes: Vec<u64> = Sweep::new(SIZE_MAX - 1, SIZE_MAX, 1, 3).unwrap().sizes().collect();
        assert_eq!(sizes, [SIZE_MAX - 1]);
        let sizes: Vec<u64> = Sweep::new(u64::MAX - 1, u64::MAX, 2, 1).unwrap().sizes().collect();
        assert_eq!(sizes, [u64::MAX - 1]);
    }

    #[test]
    fn a_sweep_that_would_not_end_is_an_error() {
        assert_eq!(Sweep::new(8, 16, 0, 1), Err(SweepError::Endless { last: 16 }));
        assert_eq!(Sweep::new(0, 16, 1, 2), Err(SweepError::ZeroTimesFactor));
        assert!(matches!(Sweep::new(0, SIZE_MAX, 1, 1), Err(SweepError::TooMany { .. })));
    }

    proptest! {
        #[test]
        fn every_sweep_starts_at_the_first_rises_and_is_bounded(
            first in any::<u64>(), last in any::<u64>(), step in any::<u64>(), factor in 0u64..5,
        ) {
            if let Ok(sweep) = Sweep::new(first, last, step, factor) {
                let sizes: Vec<u64> = sweep.sizes().take(1000).collect();
                prop_assert_eq!(sizes[0], first);
                prop_assert!(sizes.is_sorted_by(|a, b| a < b));
                prop_assert!(sizes.iter().all(|&size| size <= last));
            } else {
                prop_assert!(first != last || factor > 1);
            }
        }
    }
}
