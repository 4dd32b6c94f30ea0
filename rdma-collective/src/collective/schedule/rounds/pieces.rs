//! A buffer or a part in pieces, so that what a rank keeps of many is bounded.

use crate::collective::ScheduleError;
use crate::collective::schedule::chunk::split;
use crate::collective::schedule::{Buffer, Operation, Place, Span};

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
