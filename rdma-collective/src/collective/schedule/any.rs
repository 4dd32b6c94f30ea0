//! The schedule of an operation, whichever it is.

use std::iter::FusedIterator;

use super::{Chain, Line, Operation, Ring, Step};
use crate::collective::ScheduleError;

/// The steps of one rank in a collective, by the algorithm that suits it. All of them use the links of a ring.
///
/// With `reproducible`, which is alike on all ranks, those that reduce do so in the order of ranks.
#[derive(Clone, Debug)]
pub(crate) enum Schedule {
    /// The fastest there is.
    Ring(Ring),
    /// In the order of ranks.
    Chain(Chain),
    /// From one rank to all others.
    Line(Line),
}

impl Schedule {
    /// The steps of `operation.rank` in an all-reduce.
    ///
    /// # Errors
    /// As [`Ring::all_reduce`].
    pub(crate) fn all_reduce(operation: Operation, reproducible: bool) -> Result<Self, ScheduleError> {
        if reproducible {
            Chain::all_reduce(operation).map(Self::Chain)
        } else {
            Ring::all_reduce(operation).map(Self::Ring)
        }
    }

    /// The steps of `operation.rank` in an all-gather, of `count` elements of each rank.
    ///
    /// # Errors
    /// As [`Ring::all_gather`].
    pub(crate) fn all_gather(operation: Operation) -> Result<Self, ScheduleError> {
        Ring::all_gather(operation).map(Self::Ring)
    }

    /// The steps of `operation.rank` in a reduce-scatter, with `count` elements for each rank.
    ///
    /// # Errors
    /// As [`Ring::reduce_scatter`].
    pub(crate) fn reduce_scatter(operation: Operation, reproducible: bool) -> Result<Self, ScheduleError> {
        if reproducible {
            Chain::reduce_scatter(operation).map(Self::Chain)
        } else {
            Ring::reduce_scatter(operation).map(Self::Ring)
        }
    }

    /// The steps of `operation.rank` in a broadcast of what `root` has.
    ///
    /// # Errors
    /// As [`Line::broadcast`].
    pub(crate) fn broadcast(operation: Operation, root: u32) -> Result<Self, ScheduleError> {
        Line::broadcast(operation, root).map(Self::Line)
    }

    /// The steps of `operation.rank` in a reduce, which leaves the result to `root`.
    ///
    /// # Errors
    /// As [`Chain::reduce`].
    pub(crate) fn reduce(operation: Operation, root: u32, reproducible: bool) -> Result<Self, ScheduleError> {
        Chain::reduce(operation, root, reproducible).map(Self::Chain)
    }

    /// Whether the last `Put` has been made; at the beginning, that there is none. Later it can be `false` though there is
    /// nothing to put any more.
    pub(crate) fn has_put_all(&self) -> bool {
        match self {
            Self::Ring(ring) => ring.has_put_all(),
            Self::Chain(chain) => chain.has_put_all(),
            Self::Line(line) => line.has_put_all(),
        }
    }
}

impl Iterator for Schedule {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        match self {
            Self::Ring(ring) => ring.next(),
            Self::Chain(chain) => chain.next(),
            Self::Line(line) => line.next(),
        }
    }
}

impl FusedIterator for Schedule {}
