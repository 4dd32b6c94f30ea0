//! The cut of messages into chunks, each of which fits a slot.

use crate::collective::ScheduleError;
use crate::collective::schedule::chunk::split;
use crate::collective::schedule::{Place, Span, Staging};

/// See the module. Both ends of a link come to the same.
#[derive(Clone, Copy, Debug)]
pub(in crate::collective) struct Cut {
    element: usize,
    slot_elements: usize,
    chunk_bytes_min: usize,
    /// Chunks that are sent before the first is received.
    pub(super) ahead: u64,
    /// After how many chunks slots are given back.
    pub(in crate::collective) signal_every: u64,
    /// Whether there are messages of no bytes.
    empty: bool,
}

impl Cut {
    pub(in crate::collective) fn new(element: usize, staging: &Staging) -> Result<Self, ScheduleError> {
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
    pub(in crate::collective) fn with_empty(self) -> Self {
        Self { empty: true, ..self }
    }

    /// How many chunks `len` bytes are.
    pub(in crate::collective) fn chunks(&self, len: usize) -> u64 {
        let needed = (len / self.element).div_ceil(self.slot_elements) as u64;
        let worth = (len / self.chunk_bytes_min.max(self.element)) as u64;
        needed.max(worth.min(self.ahead)).max(u64::from(self.empty))
    }

    /// Chunk `index` of `len` bytes.
    pub(in crate::collective) fn span(&self, len: usize, index: u64) -> Span {
        let chunks = self.chunks(len).max(1) as usize;
        let (start, count) = split(len / self.element, chunks, index as usize);
        Span { offset: start * self.element, len: count * self.element }
    }

    pub(super) fn chunk(&self, place: Place, index: u64) -> Place {
        place.part(self.span(place.len(), index))
    }
}
