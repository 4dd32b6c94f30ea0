//! The cut of a buffer into rounds, segments and chunks, all as equal as whole elements allow; and the order of
//! reduction that follows from the cut.
//!
//! Owns the sizes. Which rank sends which chunk is the ring's and the chain's.

use super::{Operation, Span};
use crate::collective::ScheduleError;

/// The bounded memory through which a link's messages go; the same on all ranks.
///
/// A rank holds `slots * slot_bytes` for what each neighbour writes to it, and as much again for what it sends
/// when the caller's buffer is not registered: with the defaults, 4 MiB for each neighbour, whatever the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Staging {
    /// Slots a link, at least 1. Half of them are kept in flight; the others absorb a late neighbour.
    pub(crate) slots: u16,
    /// Bytes a slot, at least one element. Larger slots cost fewer messages, smaller ones start sooner.
    pub(crate) slot_bytes: usize,
    /// A segment is not cut into chunks below this, since a message then costs more than it overlaps.
    pub(crate) chunk_bytes_min: usize,
}

impl Default for Staging {
    fn default() -> Self {
        Self { slots: 8, slot_bytes: 256 * 1024, chunk_bytes_min: 16 * 1024 }
    }
}

impl Staging {
    /// Whole elements that fit a slot, at least one.
    pub(super) fn slot_elements(&self, element: usize) -> Result<usize, ScheduleError> {
        let Self { slots, slot_bytes, .. } = *self;
        match slot_bytes / element {
            elements if elements > 0 && slots > 0 => Ok(elements),
            _ => Err(ScheduleError::StagingTooSmall { slots, slot_bytes, element_bytes: element }),
        }
    }
}

/// The cut of one buffer: rounds of `ranks` segments of `chunks` chunks each.
///
/// A round is small enough that the bytes reduced in it are still in the cache when they are sent on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunking {
    count: usize,
    element: usize,
    /// Segments of a round.
    pub(crate) ranks: usize,
    pub(crate) rounds: usize,
    /// Chunks of a segment.
    pub(crate) chunks: usize,
    /// Elements of a rank's part, where the segments of all rounds together are the ranks' parts.
    part: Option<usize>,
}

/// A chunk by its numbers in a [`Chunking`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkIndex {
    pub(crate) round: usize,
    pub(crate) segment: usize,
    pub(crate) chunk: usize,
}

impl Chunking {
    pub(crate) fn new(
        count: usize,
        element: usize,
        ranks: usize,
        staging: &Staging,
    ) -> Result<Self, ScheduleError> {
        let slot_elements = staging.slot_elements(element)?;
        let segment_bytes = count.div_ceil(ranks).saturating_mul(element);
        let worth = segment_bytes / staging.chunk_bytes_min.max(1);
        let chunks = worth.clamp(1, usize::from(staging.slots / 2).max(1));
        // A product that saturates is beyond any count, and gives one round, as the exact product would.
        let round_elements = ranks.saturating_mul(chunks).saturating_mul(slot_elements);
        Ok(Self { count, element, ranks, rounds: count.div_ceil(round_elements), chunks, part: None })
    }

    /// The cut of a buffer that has a part of `part` elements for each rank: a round has a piece of each part.
    pub(crate) fn of_parts(
        part: usize,
        element: usize,
        ranks: usize,
        staging: &Staging,
    ) -> Result<Self, ScheduleError> {
        let cut = Self::new(part.saturating_mul(ranks), element, ranks, staging)?;
        Ok(Self { part: Some(part), ..cut })
    }

    /// This cut with chunks of at most `bytes_max` bytes, or of one element if that is longer; rounds and segments
    /// stay.
    pub(crate) fn finer(self, bytes_max: usize) -> Self {
        let longest = match self.part {
            None => self.count.div_ceil(self.rounds.max(1)).div_ceil(self.ranks),
            Some(part) => part.div_ceil(self.rounds.max(1)),
        };
        let chunks = longest.div_ceil((bytes_max / self.element).max(1)).max(1);
        Self { chunks, ..self }
    }

    /// The bytes of a chunk; it may be empty, and is never longer than a slot.
    pub(crate) fn span(&self, at: ChunkIndex) -> Span {
        let (segment_start, segment_len) = match self.part {
            None => {
                let (round_start, round_len) = split(self.count, self.rounds, at.round);
                let (start, len) = split(round_len, self.ranks, at.segment);
                (round_start + start, len)
            }
            Some(part) => {
                let (start, len) = split(part, self.rounds, at.round);
                (part * at.segment + start, len)
            }
        };
        let (chunk_start, chunk_len) = split(segment_len, self.chunks, at.chunk);
        Span { offset: (segment_start + chunk_start) * self.element, len: chunk_len * self.element }
    }
}

/// The order in which the operands of an element are reduced: from one rank on, around the ring.
///
/// The protocols in shared memory reduce without steps, and follow this order so that all algorithms give the same
/// bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReduceOrder(Kind);

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Every element from that rank on.
    From(u32),
    /// Each element from the rank in whose segment of a ring it lies.
    Ring(Chunking),
}

impl ReduceOrder {
    pub(crate) fn from(rank: u32) -> Self {
        Self(Kind::From(rank))
    }

    /// The order of a [`Ring::all_reduce`](super::Ring::all_reduce).
    ///
    /// # Errors
    /// [`ScheduleError::StagingTooSmall`] when the staging has no slot or none that an element fits.
    pub(crate) fn of_ring(operation: &Operation) -> Result<Self, ScheduleError> {
        let Operation { ranks, count, data_type, staging, .. } = *operation;
        Ok(Self(Kind::Ring(Chunking::new(count, data_type.size(), ranks as usize, &staging)?)))
    }

    /// The rank from which on the element at byte `offset` is reduced, and the next byte that may have another such
    /// rank.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> (u32, usize) {
        let Chunking { count, element, ranks, rounds, .. } = match self.0 {
            Kind::From(rank) => return (rank, usize::MAX),
            Kind::Ring(chunking) => chunking,
        };
        let index = offset / element;
        let (round_start, round_len) = split(count, rounds, part_at(count, rounds, index));
        let segment = part_at(round_len, ranks, index - round_start);
        let (start, len) = split(round_len, ranks, segment);
        // The number is below `ranks`, which came from a `u32`.
        (segment as u32, (round_start + start + len) * element)
    }
}

/// Chunks for each rank of a chain, unless they would be smaller than [`Staging::chunk_bytes_min`].
///
/// The first of `4 n` chunks reaches the last of `n` ranks in at most a fifth of the time of all.
const CHUNKS_A_RANK: u64 = 4;

/// The cut of one buffer into chunks that pass all ranks one after the other, as in a chain or a line.
///
/// The chunks are so many that most of the time every rank works on one. In a buffer of parts, chunk `i` is of part
/// `i % parts`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunks {
    /// Elements of a part.
    count: usize,
    element: usize,
    parts: u64,
    /// Chunks of a part.
    chunks: usize,
}

impl Chunks {
    /// The cut of a buffer of `parts` parts, of `count` elements each, for `ranks` ranks.
    pub(super) fn new(
        count: usize,
        element: usize,
        parts: u32,
        ranks: u32,
        staging: &Staging,
    ) -> Result<Self, ScheduleError> {
        let needed = count.div_ceil(staging.slot_elements(element)?);
        let worth = count.saturating_mul(element) / staging.chunk_bytes_min.max(element);
        let parts = u64::from(parts.max(1));
        let enough = usize::try_from(u64::from(ranks) * CHUNKS_A_RANK / parts).unwrap_or(usize::MAX);
        Ok(Self { count, element, parts, chunks: worth.min(enough).max(needed) })
    }

    /// Chunks of all parts.
    pub(super) fn len(&self) -> u64 {
        self.parts.saturating_mul(self.a_part())
    }

    /// Chunks of one part.
    pub(super) fn a_part(&self) -> u64 {
        self.chunks as u64
    }

    /// The part that a chunk is of.
    pub(super) fn part(&self, chunk: u64) -> u32 {
        // The remainder is below `parts`, which came from a `u32`.
        (chunk % self.parts) as u32
    }

    /// The bytes of a chunk, which are at least one element and fit a slot; `None` beyond the last.
    pub(super) fn span(&self, chunk: u64) -> Option<Span> {
        let index = usize::try_from(chunk / self.parts).ok().filter(|index| *index < self.chunks)?;
        let (start, len) = split(self.count, self.chunks, index);
        let start = self.part(chunk) as usize * self.count + start;
        Some(Span { offset: start * self.element, len: len * self.element })
    }
}

/// Start and length of part `index` when `total` is split into `parts`; where it does not divide, the first parts are
/// longer by 1.
pub(super) fn split(total: usize, parts: usize, index: usize) -> (usize, usize) {
    let (len, longer) = (total / parts, total % parts);
    (index * len + index.min(longer), len + usize::from(index < longer))
}

/// The part in which element `index` lies when [`split`] splits `total` into `parts`.
fn part_at(total: usize, parts: usize, index: usize) -> usize {
    let (len, longer) = (total / parts, total % parts);
    let begin = longer * (len + 1);
    if index < begin { index / (len + 1) } else { longer + (index - begin) / len.max(1) }
}

#[cfg(test)]
mod tests;
