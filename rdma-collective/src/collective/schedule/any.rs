//! The schedule of an operation, whichever it is.

use std::iter::FusedIterator;

use super::{Chain, Operation, Ring, Step};
use crate::error::ScheduleError;

/// The steps of one rank in an all-reduce, by the algorithm that suits it. All of them use the links of a ring.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Schedule {
    /// The fastest there is.
    Ring(Ring),
    /// In the order of ranks.
    Chain(Chain),
}

impl Schedule {
    /// The steps of `operation.rank` in an all-reduce; with `reproducible`, which is alike on all ranks, in the order of
    /// ranks.
    ///
    /// # Errors
    /// As [`Ring::all_reduce`].
    ///
    /// ```
    /// use rdma_collective::collective::DataType;
    /// use rdma_collective::collective::schedule::{Operation, Schedule, Staging, Step};
    ///
    /// let staging = Staging::default();
    /// let operation = Operation { rank: 3, ranks: 4, count: 1000, data_type: DataType::F32, staging };
    /// // The last rank alone has the result of a chain at first.
    /// let mut steps = Schedule::all_reduce(operation, true)?;
    /// assert!(steps.all(|step| !matches!(step, Step::CopyFrom { .. })));
    /// # Ok::<(), rdma_collective::error::ScheduleError>(())
    /// ```
    pub fn all_reduce(operation: Operation, reproducible: bool) -> Result<Self, ScheduleError> {
        if reproducible {
            Chain::all_reduce(operation).map(Self::Chain)
        } else {
            Ring::all_reduce(operation).map(Self::Ring)
        }
    }
}

impl Schedule {
    /// Whether the last `Put` has been made. It can be `false` then when there is nothing to put behind it.
    #[must_use]
    pub fn has_put_all(&self) -> bool {
        match self {
            Self::Ring(ring) => ring.has_put_all(),
            Self::Chain(chain) => chain.has_put_all(),
        }
    }
}

impl Iterator for Schedule {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        match self {
            Self::Ring(ring) => ring.next(),
            Self::Chain(chain) => chain.next(),
        }
    }
}

impl FusedIterator for Schedule {}
