//! Operations that nobody counts.

use std::time::Instant;

use crate::collective::CollectiveError;
use crate::collective::call::Collective;
use crate::collective::communicator::algorithms::Algorithm;

/// The counts of a communicator.
#[derive(Debug, Default)]
pub(crate) struct Tallies(());

/// An operation that is under way.
#[derive(Debug, Default)]
pub(crate) struct Operation(());

impl Tallies {
    /// Makes the tally of this collective and algorithm the present one.
    #[inline(always)]
    pub(crate) fn turn_to(&mut self, _: (Collective, Algorithm)) {}

    /// Counts an operation of the present tally that its caller's thread has ended.
    #[inline(always)]
    pub(crate) fn quick(&mut self, _: usize, _: impl FnOnce() -> Instant) {}

    /// Begins to count an operation. Reads no clock.
    #[inline(always)]
    pub(crate) fn begin(
        &mut self,
        _: (Collective, Algorithm),
        _: usize,
        _: impl FnOnce() -> Instant,
    ) -> Operation {
        Operation(())
    }
}

impl Operation {
    /// Counts the end of the operation; only the first call counts.
    #[inline(always)]
    pub(crate) fn end(&mut self, _: Result<(), &CollectiveError>) {}
}
