//! Schedules: which rank sends which bytes to which rank, and in which order, as pure data.
//!
//! A schedule is a function of the operation, the count, the rank and the number of ranks. It knows no device, no
//! clock and no address, so that tests simulate it without a device. It is an iterator: steps are made one by one, in
//! constant memory. The executor in `collective/execute` owns the links, the slots and the buffers, and carries one
//! step out after the other, and compares the headers of ranks before a step uses what they have sent.
//!
//! A [`Schedule`] is an algorithm that uses the links of a ring, or a [`P2pSchedule`], which uses links between any two
//! ranks. All of them speak of [`Step`]s, so that one executor carries them out and one simulator checks and times
//! them. A new algorithm is a new iterator of steps.

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
pub(crate) use extent::{Buffer, Extent, Source};
pub(crate) use line::Line;
pub(crate) use operation::Operation;
pub(crate) use p2p::P2pSchedule;
pub(super) use p2p::{Cut, LATENCY_BYTES, Share, Transfer};
pub(crate) use ring::Ring;
pub(crate) use step::{Span, Step};

use crate::collective::ScheduleError;

/// The steps of one rank in a collective over links.
///
/// The constructors take the algorithm around the ring that suits the collective. `reproducible` must be the same on
/// all ranks; the algorithms that reduce then do so in the order of ranks.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a schedule is iterated where it is, without an allocation")]
pub(crate) enum Schedule {
    /// Around the ring, bandwidth-optimal.
    Ring(Ring),
    /// From the first rank to the last, so that every element is reduced in the order of ranks.
    Chain(Chain),
    /// From the root to all other ranks, one after the other.
    Line(Line),
    /// In rounds, between any two ranks.
    P2p(P2pSchedule),
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

    /// Whether this rank must send its header to the next rank of the ring in a control message. Asked before the first
    /// step.
    ///
    /// Around the ring, the header goes in front of the first message, so only a rank that puts none needs it. In
    /// rounds the first message to each rank has it, so only rounds whose messages leave ranks apart need it.
    pub(crate) fn announces(&self) -> bool {
        match self {
            Self::P2p(rounds) => !rounds.joins_all(),
            _ => self.has_put_all(),
        }
    }

    /// Whether this is an algorithm in rounds whose messages join all ranks, so that no header goes around the ring.
    pub(crate) fn joins_all(&self) -> bool {
        matches!(self, Self::P2p(rounds) if rounds.joins_all())
    }

    /// Whether this is an algorithm in rounds, which uses links between any two ranks.
    pub(crate) fn is_in_rounds(&self) -> bool {
        matches!(self, Self::P2p(_))
    }

    /// Whether the last `Put` has been made; before the first step, whether there is none. Rounds never know.
    ///
    /// Later it may be `false` although nothing is left to put: chunks behind the last `Put` may be empty.
    pub(crate) fn has_put_all(&self) -> bool {
        match self {
            Self::Ring(ring) => ring.has_put_all(),
            Self::Chain(chain) => chain.has_put_all(),
            Self::Line(line) => line.has_put_all(),
            Self::P2p(_) => false,
        }
    }

    /// The spans exchanged with a rank, where parts are of any length.
    pub(crate) fn share(&self, peer: u32) -> Option<Share> {
        match self {
            Self::P2p(rounds) => rounds.share(peer),
            _ => None,
        }
    }

    /// Bytes of scratch that this rank needs.
    pub(crate) fn scratch_bytes(&self) -> usize {
        match self {
            Self::P2p(rounds) => rounds.scratch_bytes(),
            _ => 0,
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
            Self::P2p(rounds) => rounds.next(),
        }
    }
}
