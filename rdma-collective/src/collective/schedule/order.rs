//! From which rank on elements are reduced, for whoever reduces them otherwise than by steps and is to have the same bits.

use super::Operation;
use super::chunk::Chunking;
use crate::collective::ScheduleError;

/// The order in which the operands of an element are reduced: from one rank on, around the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order(Kind);

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// From that rank on, whichever element it is.
    From(u32),
    /// From the rank in whose segment of a ring it lies.
    Ring(Chunking),
}

impl Order {
    pub(crate) fn from(rank: u32) -> Self {
        Self(Kind::From(rank))
    }

    /// That of a [`Ring::all_reduce`](super::Ring::all_reduce).
    ///
    /// # Errors
    /// As there.
    pub(crate) fn of_ring(operation: &Operation) -> Result<Self, ScheduleError> {
        let Operation { ranks, count, data_type, staging, .. } = *operation;
        Ok(Self(Kind::Ring(Chunking::new(count, data_type.size(), ranks as usize, &staging)?)))
    }

    /// The rank from which on the element at byte `offset` is reduced, and where the next begins that may have another.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> (u32, usize) {
        match &self.0 {
            Kind::From(rank) => (*rank, usize::MAX),
            Kind::Ring(chunking) => chunking.segment_at(offset),
        }
    }
}
