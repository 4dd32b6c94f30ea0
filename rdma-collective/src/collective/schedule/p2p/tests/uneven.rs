//! Pairwise exchange of parts of any length, under any interleaving.

use super::*;
use crate::collective::schedule::tests::simulate::{Cell, World};

const ELEMENT: usize = 4;

/// Elements that each rank (row) sends to each rank (column); `None` is no message.
type Matrix = Vec<Vec<Option<usize>>>;

/// The spans of consecutive parts of the given lengths.
fn parts(counts: impl Iterator<Item = Option<usize>>) -> Vec<Option<Span>> {
    let mut offset = 0;
    let part = |count: Option<usize>| {
        count.map(|count| {
            let span = Span { offset, len: count * ELEMENT };
            offset += span.len;
            span
        })
    };
    counts.map(part).collect()
}

fn sent(matrix: &Matrix, rank: usize) -> Vec<Option<Span>> {
    parts(matrix[rank].iter().copied())
}

fn received(matrix: &Matrix, rank: usize) -> Vec<Option<Span>> {
    parts(matrix.iter().map(|row| row[rank]))
}

fn program(matrix: &Matrix, rank: usize, staging: Staging) -> P2pSchedule {
    let shares = sent(matrix, rank).into_iter().zip(received(matrix, rank));
    let shares: Vec<Share> = shares.map(|(sent, received)| Share { sent, received }).collect();
    let (ranks, data_type) = (matrix.len() as u32, DataType::F32);
    let operation = Operation { rank: rank as u32, ranks, count: 0, data_type, staging };
    P2pSchedule::uneven(operation, shares.into()).unwrap()
}

/// The cell that a rank must have at an index: an element of the rank whose part the index lies in.
fn expected(matrix: &Matrix, rank: usize, element: usize) -> Option<Cell> {
    let at = element * ELEMENT;
    let from =
        received(matrix, rank).iter().position(|part| part.is_some_and(|part| part.range().contains(&at)))?;
    let (theirs, ours) = (sent(matrix, from)[rank]?, received(matrix, rank)[from]?);
    Some(Cell::of(from, (theirs.offset + at - ours.offset) / ELEMENT))
}

fn matrices() -> impl Strategy<Value = Matrix> {
    let count = prop_oneof![3 => Just(Some(0)), 2 => Just(None), 4 => (0_usize..60).prop_map(Some)];
    (1_usize..=9)
        .prop_flat_map(move |ranks| prop::collection::vec(prop::collection::vec(count.clone(), ranks), ranks))
}

proptest! {
    #[test]
    fn every_element_comes_where_it_must_whatever_the_counts(
        matrix in matrices(),
        slots in 1_u16..10,
        slot_bytes in 4_usize..120,
        chunk_bytes_min in 0_usize..40,
        times in 1_usize..3,
        seed in 1_u64..,
    ) {
        let staging = Staging { slots, slot_bytes, chunk_bytes_min };
        let programs: Vec<_> = (0..matrix.len()).map(|rank| program(&matrix, rank, staging)).collect();
        let most = |parts: Vec<Option<Span>>| parts.iter().flatten().map(|part| part.len / ELEMENT).sum::<usize>();
        let lens = (0..matrix.len()).map(|rank| most(sent(&matrix, rank)).max(most(received(&matrix, rank))));
        let len = lens.max().unwrap_or(0);
        let mut world = World::new(programs, times, len, ELEMENT, slots, false);
        run(&mut world, random(seed));
        world.assert_ended(|rank, element| expected(&matrix, rank, element));
    }
}

#[test]
fn each_rank_sends_a_message_of_nothing_where_it_sends_nothing_and_none_where_there_is_none() {
    let staging = Staging::default();
    let messages = |matrix: &Matrix, rank| {
        let puts = program(matrix, rank, staging).filter(|step| matches!(step, Step::Put { .. }));
        puts.count()
    };
    assert_eq!(messages(&vec![vec![Some(0); 4]; 4], 2), 3);
    assert_eq!(messages(&vec![vec![None; 4]; 4], 2), 0);
    assert_eq!(messages(&vec![vec![Some(1), None, Some(0), None]; 4], 3), 2);
}
