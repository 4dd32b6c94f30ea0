//! In-flight rings: the requests a device may still be working on, with the memory that they own.
//!
//! Each queue has one [`Ring`]. A request enters at the tail when it is posted, and leaves at the head when its
//! completion, or that of a later request, proves that the device is done with it. The device gets a `wr_id` made of
//! slot, generation, queue and sequence. A `wr_id` that comes back is checked against the ring and is never a pointer,
//! so a faulty device cannot make this process free memory twice.

use super::interface::Slot;
use super::work::Work;
use crate::WorkId;

/// Bits of a `wr_id` that count the requests of one queue, wrapping. 2^40 is far beyond the depth of any
/// queue, so no two requests in flight share a sequence.
const SEQUENCE_BITS: u32 = 40;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;
const GENERATION_MASK: u8 = 0x7f;

/// The send or the receive queue of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    Send,
    Recv,
}

/// The parts of a `wr_id`, from the highest bits to the lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) slot: Slot,
    /// 7 bits: distinguishes the completions of a destroyed queue pair from those of its successor in the slot.
    pub(super) generation: u8,
    pub(super) queue: Queue,
    /// 40 bits: the position of the request in its queue, wrapping.
    pub(super) sequence: u64,
}

impl Tag {
    #[inline]
    pub(super) fn encode(self) -> WorkId {
        let queue = u64::from(self.queue == Queue::Recv);
        WorkId(
            u64::from(self.slot) << 48
                | u64::from(self.generation & GENERATION_MASK) << 41
                | queue << 40
                | (self.sequence & SEQUENCE_MASK),
        )
    }

    #[inline]
    pub(super) fn decode(wr_id: u64) -> Self {
        Self {
            slot: (wr_id >> 48) as Slot,
            generation: (wr_id >> 41) as u8 & GENERATION_MASK,
            queue: if wr_id >> 40 & 1 == 1 { Queue::Recv } else { Queue::Send },
            sequence: wr_id & SEQUENCE_MASK,
        }
    }

    /// The generation of the next queue pair in a slot.
    pub(super) fn next_generation(generation: u8) -> u8 {
        generation.wrapping_add(1) & GENERATION_MASK
    }
}

/// A request in flight, with the memory that it owns.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) work: Work,
    /// The attached region that the request uses, by its index in [`Regions`](super::worker).
    pub(super) region: Option<u32>,
    pub(super) bytes: u32,
    /// The fence posted this receive for itself: its completion is not reported.
    pub(super) sentinel: bool,
}

/// The requests in flight of one queue, oldest first, up to a fixed depth.
#[derive(Debug)]
pub(super) struct Ring {
    /// A power of two of them, so that a sequence keeps its index when the 40 bits wrap.
    entries: Box<[Option<Entry>]>,
    capacity: usize,
    /// Sequence of the oldest entry; 40 bits, wrapping.
    oldest: u64,
    /// Requests in flight.
    len: usize,
}

impl Ring {
    /// Makes a ring for `capacity` requests; the first one gets the sequence `first`.
    pub(super) fn new(capacity: usize, first: u64) -> Self {
        let entries = (0..capacity.max(1).next_power_of_two()).map(|_| None).collect();
        Self { entries, capacity, oldest: first & SEQUENCE_MASK, len: 0 }
    }

    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The index of the entry `ahead` positions after the oldest.
    #[inline]
    fn index(&self, ahead: usize) -> usize {
        (self.oldest as usize).wrapping_add(ahead) & (self.entries.len() - 1)
    }

    /// The sequence that the next pushed entry gets.
    #[inline]
    pub(super) fn next_sequence(&self) -> u64 {
        (self.oldest + self.len as u64) & SEQUENCE_MASK
    }

    /// Reserves the entry of the next request and returns it with its sequence; `None` when the ring is full.
    ///
    /// The caller must fill the entry: it counts as in flight from now on.
    #[inline]
    pub(super) fn reserve_newest(&mut self) -> Option<(u64, &mut Option<Entry>)> {
        if self.len >= self.capacity {
            return None;
        }
        let (sequence, index) = (self.next_sequence(), self.index(self.len));
        self.len += 1;
        Some((sequence, &mut self.entries[index]))
    }

    /// Adds a request, or gives it back when the ring is full.
    pub(super) fn push(&mut self, entry: Entry) -> Result<u64, Entry> {
        match self.reserve_newest() {
            Some((sequence, cell)) => {
                *cell = Some(entry);
                Ok(sequence)
            }
            None => Err(entry),
        }
    }

    /// Takes the newest request out again, because the device did not take it.
    pub(super) fn pop_newest(&mut self) -> Option<Entry> {
        if self.len == 0 {
            return None;
        }
        self.len -= 1;
        let index = self.index(self.len);
        self.entries[index].take()
    }

    /// Releases the entry of the oldest request and returns it with its sequence.
    ///
    /// The caller must empty the entry, because the slot may be reserved again at once.
    #[inline]
    pub(super) fn release_oldest(&mut self) -> Option<(u64, &mut Option<Entry>)> {
        if self.len == 0 {
            return None;
        }
        let (sequence, index) = (self.oldest, self.index(0));
        self.len -= 1;
        self.oldest = (self.oldest + 1) & SEQUENCE_MASK;
        Some((sequence, &mut self.entries[index]))
    }

    /// Counts the requests older than `sequence`; `None` when `sequence` is not in flight.
    #[inline]
    pub(super) fn ahead_of(&self, sequence: u64) -> Option<usize> {
        let ahead = usize::try_from(sequence.wrapping_sub(self.oldest) & SEQUENCE_MASK).ok()?;
        (ahead < self.len).then_some(ahead)
    }

    /// The request `ahead` positions after the oldest.
    #[inline]
    pub(super) fn peek(&self, ahead: usize) -> Option<&Entry> {
        if ahead >= self.len { None } else { self.entries[self.index(ahead)].as_ref() }
    }
}

#[cfg(test)]
mod tests;
