//! Which requests a device may still be working on, and the memory that they own.
//!
//! One [`Ring`] a queue. A request enters at the tail when it is posted and leaves at the head
//! when its completion, or that of a later one, proves that the device is done with it. The
//! device is handed a `wr_id` made of slot, generation, queue and sequence; what it returns
//! is checked against the ring and is never a pointer.

use super::interface::Slot;
use super::work::Work;
use crate::WorkId;

/// Bits of a `wr_id` that count requests of one queue; wraps.
const SEQUENCE_BITS: u32 = 40;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;
const GENERATION_MASK: u8 = 0x7f;

/// Which queue of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    Send,
    Recv,
}

/// The parts of a `wr_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) slot: Slot,
    /// 7 bits: tells a completion of a destroyed queue pair from one of its successor.
    pub(super) generation: u8,
    pub(super) queue: Queue,
    /// 40 bits.
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

    pub(super) fn next_generation(generation: u8) -> u8 {
        generation.wrapping_add(1) & GENERATION_MASK
    }
}

/// A request in flight, with the memory that it owns.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) work: Work,
    /// The attached region it uses, by its index in the worker's table.
    pub(super) region: Option<u32>,
    pub(super) bytes: u32,
    /// Posted by the fence itself; its completion is told to no one.
    pub(super) sentinel: bool,
}

/// The requests in flight of one queue, oldest first; its depth is fixed.
#[derive(Debug)]
pub(super) struct Ring {
    /// A power of two of them, so that places stay consistent when the sequence wraps.
    entries: Box<[Option<Entry>]>,
    capacity: usize,
    /// Sequence of the oldest; 40 bits, wrapping.
    oldest: u64,
    /// How many are in flight.
    len: usize,
}

impl Ring {
    /// A ring for `capacity` requests, of which the first gets the sequence `first`.
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

    #[inline]
    fn index(&self, ahead: usize) -> usize {
        (self.oldest as usize).wrapping_add(ahead) & (self.entries.len() - 1)
    }

    /// Whether another fits.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len >= self.capacity
    }

    /// The sequence that the next pushed entry gets.
    #[inline]
    pub(super) fn next_sequence(&self) -> u64 {
        (self.oldest + self.len as u64) & SEQUENCE_MASK
    }

    /// Makes room for the newest, which the caller puts there; `None` when the ring is full. With its sequence.
    #[inline]
    pub(super) fn newest(&mut self) -> Option<(u64, &mut Option<Entry>)> {
        if self.is_full() {
            return None;
        }
        let (sequence, index) = (self.next_sequence(), self.index(self.len));
        self.len += 1;
        Some((sequence, &mut self.entries[index]))
    }

    /// Adds the newest; gives it back when the ring is full.
    pub(super) fn push(&mut self, entry: Entry) -> Result<u64, Entry> {
        match self.newest() {
            Some((sequence, place)) => {
                *place = Some(entry);
                Ok(sequence)
            }
            None => Err(entry),
        }
    }

    /// Takes the newest back out, because it was not posted after all.
    pub(super) fn pop_newest(&mut self) -> Option<Entry> {
        if self.len == 0 {
            return None;
        }
        self.len -= 1;
        let index = self.index(self.len);
        self.entries[index].take()
    }

    /// Takes the oldest out, with its sequence: the caller empties its place.
    #[inline]
    pub(super) fn oldest(&mut self) -> Option<(u64, &mut Option<Entry>)> {
        if self.len == 0 {
            return None;
        }
        let (sequence, index) = (self.oldest, self.index(0));
        self.advance();
        Some((sequence, &mut self.entries[index]))
    }

    /// How many entries are older than `sequence`; `None` when it is not in flight.
    #[inline]
    pub(super) fn ahead_of(&self, sequence: u64) -> Option<usize> {
        let ahead = usize::try_from(sequence.wrapping_sub(self.oldest) & SEQUENCE_MASK).ok()?;
        (ahead < self.len).then_some(ahead)
    }

    /// The entry `ahead` places after the oldest.
    #[inline]
    pub(super) fn peek(&self, ahead: usize) -> Option<&Entry> {
        if ahead >= self.len { None } else { self.entries[self.index(ahead)].as_ref() }
    }

    #[inline]
    fn advance(&mut self) {
        self.len -= 1;
        self.oldest = (self.oldest + 1) & SEQUENCE_MASK;
    }
}

#[cfg(test)]
mod tests {
    use super::super::work::Segment;
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn entry(bytes: u32) -> Entry {
        Entry { work: Work::recv(Segment::Empty), region: None, bytes, sentinel: false }
    }

    proptest! {
        #[test]
        fn a_tag_survives_the_device(slot: u16, generation in 0..=GENERATION_MASK, recv: bool, sequence in 0..=SEQUENCE_MASK) {
            let tag = Tag { slot, generation, queue: if recv { Queue::Recv } else { Queue::Send }, sequence };
            prop_assert_eq!(Tag::decode(tag.encode().0), tag);
        }

        /// Against a queue, at the begin of the sequence and across its wrap.
        #[test]
        fn the_ring_is_a_queue(capacity in 1_usize..9, near_wrap: bool, steps in prop::collection::vec(0_u8..3, 0..200)) {
            let mut ring = Ring::new(capacity, if near_wrap { SEQUENCE_MASK - 20 } else { 0 });
            let (mut model, mut sequence) = (VecDeque::new(), ring.oldest);
            for (number, step) in (0_u32..).zip(steps) {
                match step {
                    0 => match ring.push(entry(number)) {
                        Ok(given) => {
                            prop_assert_eq!(given, sequence);
                            model.push_back((sequence, number));
                            sequence = (sequence + 1) & SEQUENCE_MASK;
                        }
                        Err(back) => {
                            prop_assert_eq!(back.bytes, number);
                            prop_assert_eq!(model.len(), capacity);
                        }
                    },
                    1 => {
                        let oldest = ring.oldest().map(|(at, place)| (at, place.take().unwrap().bytes));
                        prop_assert_eq!(oldest, model.pop_front());
                    }
                    _ => {
                        let newest = model.pop_back();
                        prop_assert_eq!(ring.pop_newest().map(|entry| entry.bytes), newest.map(|(_, bytes)| bytes));
                        sequence = newest.map_or(sequence, |(at, _)| at);
                    }
                }
                prop_assert_eq!(ring.len(), model.len());
                for (ahead, (at, bytes)) in model.iter().enumerate() {
                    prop_assert_eq!(ring.ahead_of(*at), Some(ahead));
                    prop_assert_eq!(ring.peek(ahead).map(|entry| entry.bytes), Some(*bytes));
                }
                prop_assert_eq!(ring.ahead_of(sequence), None);
            }
        }
    }
}
