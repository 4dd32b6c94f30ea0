//! The cut of messages into chunks, each of which fits a slot.

use crate::collective::ScheduleError;
use crate::collective::schedule::chunk::split;
use crate::collective::schedule::{Buffer, Operation, Place, Span, Staging};

/// See the module. Both ends of a link come to the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    element: usize,
    slot_elements: usize,
    chunk_bytes_min: usize,
    /// Chunks that are sent before the first is received.
    pub(super) ahead: u64,
    /// After how many chunks slots are given back.
    pub(crate) signal_every: u64,
    /// Whether there are messages of no bytes.
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

    /// What is empty is a message, too.
    pub(crate) fn with_empty(self) -> Self {
        Self { empty: true, ..self }
    }

    /// How many chunks `len` bytes are.
    pub(crate) fn chunks(&self, len: usize) -> u64 {
        let needed = (len / self.element).div_ceil(self.slot_elements) as u64;
        let worth = (len / self.chunk_bytes_min.max(self.element)) as u64;
        needed.max(worth.min(self.ahead)).max(u64::from(self.empty))
    }

    /// Chunk `index` of `len` bytes.
    pub(crate) fn span(&self, len: usize, index: u64) -> Span {
        let chunks = self.chunks(len).max(1) as usize;
        let (start, count) = split(len / self.element, chunks, index as usize);
        Span { offset: start * self.element, len: count * self.element }
    }

    pub(super) fn chunk(&self, place: Place, index: u64) -> Place {
        place.part(self.span(place.len(), index))
    }
}

/// The cut of a part, or of a buffer, of which the schedule does one piece after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    /// Elements of a part.
    count: usize,
    element: usize,
    ranks: u32,
    pieces: usize,
}

impl Pieces {
    /// All at once.
    pub(super) fn one(operation: &Operation) -> Self {
        let Operation { count, data_type, ranks, .. } = *operation;
        Self { count, element: data_type.size(), ranks, pieces: usize::from(count > 0) }
    }

    /// Such that `kept` of them fit the slots of a link, if elements do.
    pub(super) fn fitting(operation: &Operation, kept: usize) -> Result<Self, ScheduleError> {
        let one = Self::one(operation);
        let slots = usize::from(operation.staging.slots);
        let elements = operation.staging.slot_elements(one.element)?.saturating_mul(slots);
        Ok(Self { pieces: one.count.div_ceil((elements / kept.max(1)).max(1)), ..one })
    }

    pub(super) fn len(&self) -> u64 {
        self.pieces as u64
    }

    /// The longest piece, in bytes.
    pub(super) fn longest(&self) -> usize {
        self.piece(0).len
    }

    /// The bytes of a piece, of a part alone.
    pub(super) fn piece(&self, index: u64) -> Span {
        let (start, len) = split(self.count, self.pieces.max(1), index as usize);
        Span { offset: start * self.element, len: len * self.element }
    }

    /// A piece of the parts of `parts` ranks, from `first` on and around, in a buffer of all ranks' parts.
    pub(super) fn parts(&self, buffer: Buffer, first: u32, parts: usize, piece: Span) -> Place {
        self.stepping(buffer, first, parts, piece, 1)
    }

    /// The same, from each rank to the one before.
    pub(super) fn parts_back(&self, buffer: Buffer, first: u32, parts: usize, piece: Span) -> Place {
        self.stepping(buffer, first, parts, piece, self.ranks as usize - 1)
    }

    fn stepping(&self, buffer: Buffer, first: u32, parts: usize, piece: Span, step: usize) -> Place {
        let part = self.count * self.element;
        let offset = first as usize * part + piece.offset;
        if parts == 1 {
            return Place::of(buffer, Span { offset, len: piece.len });
        }
        let end = part * self.ranks as usize;
        Place::pieces(buffer, offset, [piece.len, part * step], end, parts * piece.len)
    }
}
