//! Tags that come back from a device, and the ring against a queue.

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

    /// The ring against a `VecDeque`, at the begin of the sequence and across its wrap.
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
                    let oldest = ring.release_oldest().map(|(at, cell)| (at, cell.take().unwrap().bytes));
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
