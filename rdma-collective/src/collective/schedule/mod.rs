//! Schedules: which rank sends which bytes to which rank, and in which order, as pure data.
//!
//! A schedule is a function of the operation, the count, the rank and the number of ranks. It knows no device, no
//! clock and no address, so that tests simulate it without a device. It is an iterator: steps are made one by one, in
//! constant memory. The executor in `collective/execute` owns the links, the slots and the buffers, and carries one
//! step out after the other. Ranks that call different operations never get here: their headers are compared before a
//! step is taken.
//!
//! Two vocabularies exist. [`Schedule`] holds the algorithms that use the links of a ring, in [`Step`]s.
//! [`P2pSchedule`] holds the algorithms that use a link between any two ranks, in [`Primitive`]s; every [`Step`]
//! converts to a [`Primitive`].

mod chain;
mod chunk;
mod extent;
mod line;
mod operation;
mod p2p;
mod ring;
mod step;
#[cfg(test)]
mod tests;

pub(crate) use chain::Chain;
pub(crate) use chunk::{ChunkIndex, Chunking, ReduceOrder, Staging};
pub(crate) use extent::{Buffer, Extent};
pub(crate) use line::Line;
pub(crate) use operation::Operation;
pub(crate) use p2p::P2pSchedule;
pub(super) use p2p::{Cut, Share};
pub(crate) use ring::Ring;
pub(crate) use step::{Primitive, Source, Span, Step, Target};

use crate::collective::ScheduleError;

/// The steps of one rank in a collective over the links of a ring, by the algorithm that suits the collective.
///
/// `reproducible` must be the same on all ranks; the algorithms that reduce then do so in the order of ranks.
#[derive(Clone, Debug)]
pub(crate) enum Schedule {
    /// Around the ring, bandwidth-optimal.
    Ring(Ring),
    /// From the first rank to the last, so that every element is reduced in the order of ranks.
    Chain(Chain),
    /// From the root to all other ranks, one after the other.
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

    /// The steps of `operation.rank` in a broadcast of the buffer of `root`.
    ///
    /// # Errors
    /// As [`Line::broadcast`].
    pub(crate) fn broadcast(operation: Operation, root: u32) -> Result<Self, ScheduleError> {
        Line::broadcast(operation, root).map(Self::Line)
    }

    /// The steps of `operation.rank` in a reduce, which leaves the result at `root`.
    ///
    /// # Errors
    /// As [`Chain::reduce`].
    pub(crate) fn reduce(operation: Operation, root: u32, reproducible: bool) -> Result<Self, ScheduleError> {
        Chain::reduce(operation, root, reproducible).map(Self::Chain)
    }

    /// Whether the last `Put` has been made; before the first step, whether there is none.
    ///
    /// Later it may be `false` although nothing is left to put: chunks behind the last `Put` may be empty.
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
