//! Cuts of any buffer: they cover every element in order, and each fits a slot.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn parts_are_adjacent_cover_everything_and_differ_by_one_at_most(total in 0_usize..5000, parts in 1_usize..99) {
        let mut end = 0;
        for index in 0..parts {
            let (start, len) = split(total, parts, index);
            prop_assert_eq!(start, end);
            prop_assert!(len == total / parts || len == total.div_ceil(parts));
            end += len;
        }
        prop_assert_eq!(end, total);
    }

    #[test]
    fn chunks_cover_the_buffer_in_order_and_fit_a_slot(
        count in 0_usize..20_000,
        element in 1_usize..9,
        ranks in 1_usize..20,
        slots in 1_u16..12,
        slot_bytes in 8_usize..200,
        chunk_bytes_min in 0_usize..64,
    ) {
        let staging = Staging { slots, slot_bytes, chunk_bytes_min };
        let chunking = Chunking::new(count, element, ranks, &staging).unwrap();
        prop_assert!(chunking.chunks <= usize::from(slots));
        let mut end = 0;
        for round in 0..chunking.rounds {
            for segment in 0..ranks {
                for chunk in 0..chunking.chunks {
                    let span = chunking.span(ChunkIndex { round, segment, chunk });
                    prop_assert_eq!(span.offset, end);
                    prop_assert!(span.len <= slot_bytes && span.len.is_multiple_of(element));
                    end += span.len;
                }
            }
        }
        prop_assert_eq!(end, count * element);
    }
}

proptest! {
    #[test]
    fn rounds_of_parts_cover_each_part_in_order_and_fit_a_slot(
        part in 0_usize..2000,
        element in 1_usize..9,
        ranks in 1_usize..20,
        slots in 1_u16..12,
        slot_bytes in 8_usize..200,
        chunk_bytes_min in 0_usize..64,
    ) {
        let staging = Staging { slots, slot_bytes, chunk_bytes_min };
        let chunking = Chunking::of_parts(part, element, ranks, &staging).unwrap();
        for segment in 0..ranks {
            let mut end = segment * part * element;
            for round in 0..chunking.rounds {
                for chunk in 0..chunking.chunks {
                    let span = chunking.span(ChunkIndex { round, segment, chunk });
                    prop_assert_eq!(span.offset, end);
                    prop_assert!(span.len <= slot_bytes && span.len.is_multiple_of(element));
                    end += span.len;
                }
            }
            prop_assert_eq!(end, (segment + 1) * part * element);
        }
    }

    #[test]
    fn chunks_of_parts_take_turns_cover_each_part_in_order_and_fit_a_slot(
        part in 0_usize..2000,
        element in 1_usize..9,
        ranks in 1_u32..20,
        slot_bytes in 8_usize..200,
        chunk_bytes_min in 0_usize..400,
    ) {
        let staging = Staging { slots: 1, slot_bytes, chunk_bytes_min };
        let chunks = Chunks::new(part, element, ranks, ranks, &staging).unwrap();
        let mut ends: Vec<usize> = (0..ranks as usize).map(|rank| rank * part * element).collect();
        for chunk in 0..chunks.len() {
            let (span, at) = (chunks.span(chunk).unwrap(), chunks.part(chunk) as usize);
            prop_assert_eq!((at as u64, span.offset), (chunk % u64::from(ranks), ends[at]));
            prop_assert!((1..=slot_bytes).contains(&span.len) && span.len.is_multiple_of(element));
            ends[at] += span.len;
        }
        prop_assert_eq!(chunks.len(), chunks.a_part() * u64::from(ranks));
        prop_assert_eq!(chunks.span(chunks.len()), None);
        prop_assert!((1..).zip(ends).all(|(rank, end)| end == rank * part * element));
    }

    #[test]
    fn chunks_of_a_chain_cover_the_buffer_in_order_fit_a_slot_and_are_not_empty(
        count in 0_usize..20_000,
        element in 1_usize..9,
        ranks in 1_u32..20,
        slot_bytes in 8_usize..200,
        chunk_bytes_min in 0_usize..400,
    ) {
        let staging = Staging { slots: 1, slot_bytes, chunk_bytes_min };
        let chunks = Chunks::new(count, element, 1, ranks, &staging).unwrap();
        let mut end = 0;
        for chunk in 0..chunks.len() {
            let span = chunks.span(chunk).unwrap();
            prop_assert_eq!(span.offset, end);
            prop_assert!((1..=slot_bytes).contains(&span.len) && span.len.is_multiple_of(element));
            end += span.len;
        }
        prop_assert_eq!(end, count * element);
        prop_assert_eq!(chunks.span(chunks.len()), None);
        // Not cut further than is worth it, unless slots are smaller.
        let short = (0..chunks.len()).filter_map(|chunk| chunks.span(chunk)).map(|span| span.len).min();
        let worth = chunk_bytes_min.min(slot_bytes / 2).saturating_sub(2 * element);
        prop_assert!(chunks.len() <= 1 || short.is_some_and(|short| short >= worth), "{:?}", short);
    }
}

#[test]
fn a_slot_holds_at_least_one_element_and_there_is_one_slot() {
    for staging in [
        Staging { slots: 0, ..Staging::default() },
        Staging { slot_bytes: 3, ..Staging::default() },
        Staging { slot_bytes: 0, ..Staging::default() },
    ] {
        let Staging { slots, slot_bytes, .. } = staging;
        assert_eq!(
            Chunking::new(9, 4, 2, &staging).unwrap_err(),
            ScheduleError::StagingTooSmall { slots, slot_bytes, element_bytes: 4 }
        );
    }
}

#[test]
fn the_default_staging_of_a_ring_is_4_mib() {
    let staging = Staging::default();
    assert_eq!(2 * usize::from(staging.slots) * staging.slot_bytes, 4 << 20);
}

#[test]
fn the_largest_count_does_not_overflow() {
    let huge = Staging { slots: u16::MAX, slot_bytes: usize::MAX, chunk_bytes_min: 0 };
    let count = isize::MAX as usize / 4;
    let chunking = Chunking::new(count, 4, u32::MAX as usize, &huge).unwrap();
    assert_eq!(chunking.rounds, 1);
    let last = ChunkIndex { round: 0, segment: u32::MAX as usize - 1, chunk: chunking.chunks - 1 };
    assert_eq!(chunking.span(last).range().end, count * 4);
}
