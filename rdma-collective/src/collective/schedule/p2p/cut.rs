//! Two cuts: of messages into chunks that fit a slot, and of buffers into pieces that fit the scratch memory.

use super::cost::LATENCY_BYTES;
use crate::collective::ScheduleError;
use crate::collective::schedule::chunk::{Chunks, split};
use crate::collective::schedule::extent::Stride;
use crate::collective::schedule::{Buffer, Extent, Operation, Span, Staging};

/// The cut of messages into chunks. Both ends of a link compute the same cut from the length alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    element: usize,
    slot_elements: usize,
    chunk_bytes_min: usize,
    /// Chunks that are sent before the first is received: half of the slots, so that the other half absorbs a late
    /// receiver.
    pub(super) ahead: u64,
    /// Chunks after which slots are given back.
    pub(crate) signal_every: u64,
    /// Whether a message of no bytes is a chunk.
    empty: bool,
}

impl Cut {
    pub(crate) fn new(element: usize, staging: &Staging) -> Result<Self, ScheduleError> {
        let ahead = (u64::from(staging.slots) / 2).max(1);
        Ok(Self {
            element,
            slot_elements: staging.slot_elements(element)?,
            chunk_bytes_min: staging.chunk_bytes_min,
            ahead,
            signal_every: ((u64::from(staging.slots) + 1 - ahead) / 2).max(1),
            empty: false,
        })
    }

    /// This cut for an operation in which messages of no bytes are sent, too.
    pub(crate) fn with_empty(self) -> Self {
        Self { empty: true, ..self }
    }

    /// The number of chunks of a message of `len` bytes.
    pub(crate) fn chunks(&self, len: usize) -> u64 {
        let needed = (len / self.element).div_ceil(self.slot_elements) as u64;
        let worth = (len / self.chunk_bytes_min.max(self.element)) as u64;
        needed.max(worth.min(self.ahead)).max(u64::from(self.empty))
    }

    /// Whether all of a message of `len` bytes may be sent ahead of what its sender receives.
    pub(super) fn fits_ahead(&self, len: usize) -> bool {
        self.chunks(len) <= self.ahead
    }

    /// The bytes of chunk `index` of a message of `len` bytes.
    pub(crate) fn span(&self, len: usize, index: u64) -> Span {
        let chunks = self.chunks(len).max(1) as usize;
        let (start, count) = split(len / self.element, chunks, index as usize);
        Span { offset: start * self.element, len: count * self.element }
    }

    /// Chunk `index` of a message.
    pub(super) fn chunk(&self, message: Extent, index: u64) -> Extent {
        message.part(self.span(message.len(), index))
    }
}

/// The cut of a part, or of a whole buffer, into pieces that the schedule does one after the other, so that the
/// scratch memory is bounded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    /// Elements of a part.
    count: usize,
    /// Bytes of an element.
    element: usize,
    ranks: u32,
    pieces: usize,
}

impl Pieces {
    /// A single piece.
    pub(super) fn one(operation: &Operation) -> Self {
        let Operation { count, data_type, ranks, .. } = *operation;
        Self { count, element: data_type.size(), ranks, pieces: usize::from(count > 0) }
    }

    /// Pieces so short that `kept` of them fit into the bytes of a link's slots, but never shorter than an element.
    pub(super) fn fitting(operation: &Operation, kept: usize) -> Result<Self, ScheduleError> {
        let (slots, element) = (usize::from(operation.staging.slots), operation.data_type.size());
        let elements = operation.staging.slot_elements(element)?.saturating_mul(slots);
        Ok(Self::within(operation, kept, elements.saturating_mul(element)))
    }

    /// Pieces that pass up to `hops` ranks one behind the other, and fit a slot.
    pub(super) fn passing(operation: &Operation, hops: u32) -> Result<Self, ScheduleError> {
        let Operation { count, data_type, staging, .. } = *operation;
        let chunks = Chunks::new(count, data_type.size(), 1, hops, &staging)?;
        Ok(Self { pieces: chunks.a_part() as usize, ..Self::one(operation) })
    }

    /// How many such pieces of one of two trees pass a link while the first of them goes one level on: less than half
    /// of the slots.
    pub(super) fn hop(&self, operation: &Operation) -> u64 {
        let pair = 2 * self.longest().max(1);
        let slots = u64::from(operation.staging.slots / 2);
        (LATENCY_BYTES.div_ceil(pair) as u64 + 1).min(slots.saturating_sub(1))
    }

    /// Pieces so short that `kept` of them have at most `bytes`, but never shorter than an element.
    pub(super) fn within(operation: &Operation, kept: usize, bytes: usize) -> Self {
        let one = Self::one(operation);
        Self { pieces: one.count.div_ceil((bytes / one.element / kept.max(1)).max(1)), ..one }
    }

    pub(super) fn len(&self) -> u64 {
        self.pieces as u64
    }

    /// Bytes of the longest piece.
    pub(super) fn longest(&self) -> usize {
        self.piece(0).len
    }

    /// The bytes of piece `index` within a part.
    pub(super) fn piece(&self, index: u64) -> Span {
        let (start, len) = split(self.count, self.pieces.max(1), index as usize);
        Span { offset: start * self.element, len: len * self.element }
    }

    /// Piece `piece` of each of `parts` parts, from rank `first` on and around, in a buffer of all ranks' parts.
    pub(super) fn parts(&self, buffer: Buffer, first: u32, parts: usize, piece: Span) -> Extent {
        self.stepping(buffer, first, parts, piece, 1)
    }

    /// Like [`parts`](Self::parts), but from each rank to the rank before it.
    pub(super) fn parts_back(&self, buffer: Buffer, first: u32, parts: usize, piece: Span) -> Extent {
        self.stepping(buffer, first, parts, piece, self.ranks as usize - 1)
    }

    fn stepping(&self, buffer: Buffer, first: u32, parts: usize, piece: Span, step: usize) -> Extent {
        let part = self.count * self.element;
        let offset = first as usize * part + piece.offset;
        if parts == 1 {
            return Extent::of(buffer, Span { offset, len: piece.len });
        }
        let end = part * self.ranks as usize;
        let shape = Stride { run: piece.len, stride: part * step, wrap: end };
        Extent::strided(buffer, offset, parts * piece.len, shape)
    }
}
