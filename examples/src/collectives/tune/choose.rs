//! From times to rows: pure.

use super::measure::{Memory, Times};
use super::tunable::Tunable;
use rdma_collective::collective::Algorithm;
use rdma_collective::collective::tuning::{Peers, Row};

/// Factor by which another way must be faster than the way of the size before: times differ by so much from run to run.
const FASTER_BY: f64 = 1.05;

/// Sizes, and the ways of each.
pub type Chosen = Vec<(u64, Vec<Algorithm>)>;

/// The fastest way for each size: and where that is `direct`, what is the fastest in its place where memory is
/// borrowed.
pub fn ways(times: &Times, collective: Tunable, sizes: &[u64]) -> Chosen {
    let fastest = |size: u64, of: &[Algorithm], memory: Memory, before: Option<Algorithm>| {
        let time = |way: Algorithm| times.of(collective, size, way, memory);
        let measured = of.iter().filter_map(|way| Some((*way, time(*way)?)));
        let (best, least) = measured.min_by(|one, other| one.1.total_cmp(&other.1))?;
        let stays = before.filter(|before| time(*before).is_some_and(|time| time <= least * FASTER_BY));
        Some(stays.unwrap_or(best))
    };
    let mut before = (None, None);
    let mut chosen = Vec::new();
    for &size in sizes {
        let Some(first) = fastest(size, Algorithm::ALL, Memory::Owned, before.0) else { continue };
        let mut ways = vec![first];
        before.0 = Some(first);
        let others = [Algorithm::Pieces, Algorithm::Ring];
        before.1 = fastest(size, &others, Memory::Borrowed, before.1);
        ways.extend(before.1.filter(|_| first == Algorithm::Direct));
        chosen.push((size, ways));
    }
    chosen
}

/// Rows, one for neighbours that agree.
pub fn rows(collective: Tunable, (ranks, peers): (u32, Peers), chosen: &Chosen) -> Vec<Row> {
    let Some(tuned) = collective.tuned() else { return Vec::new() };
    let mut rows: Vec<Row> = Vec::new();
    for (bytes_max, ways) in chosen {
        match rows.last_mut().filter(|last| last.ways == *ways) {
            Some(last) => last.bytes_max = *bytes_max,
            None => rows.push(Row {
                collective: tuned,
                ranks: ranks..=ranks,
                peers,
                bytes_max: *bytes_max,
                ways: ways.clone(),
            }),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::Collective;
    use Algorithm::{Direct, Flat, Pieces, Ring};
    use Memory::{Borrowed, Owned};

    const ALL_REDUCE: Tunable = Tunable::Program(Collective::AllReduce);

    #[test]
    fn the_fastest_is_taken_and_neighbours_that_agree_are_one_row() {
        let measured = [
            (8, [(Flat, Owned, 1.0), (Direct, Owned, 3.0), (Pieces, Borrowed, 4.0), (Ring, Borrowed, 5.0)]),
            // Hardly faster.
            (16, [(Flat, Owned, 1.04), (Direct, Owned, 1.0), (Pieces, Borrowed, 4.0), (Ring, Borrowed, 5.0)]),
            (32, [(Flat, Owned, 3.0), (Direct, Owned, 1.0), (Pieces, Borrowed, 5.0), (Ring, Borrowed, 4.9)]),
            (64, [(Ring, Owned, 3.0), (Direct, Owned, 1.0), (Pieces, Borrowed, 6.0), (Ring, Borrowed, 5.0)]),
        ];
        let mut times = Times::default();
        for (size, of) in measured {
            for (way, memory, time_us) in of {
                times.add((ALL_REDUCE, size, way, memory), time_us + 1.0);
                times.add((ALL_REDUCE, size, way, memory), time_us);
            }
        }
        let chosen = ways(&times, ALL_REDUCE, &[8, 16, 32, 64, 128]);
        let rows = rows(ALL_REDUCE, (2, Peers::Mapped), &chosen);
        let told: Vec<String> = rows.iter().map(Row::to_string).collect();
        let split: Vec<Vec<&str>> = told.iter().map(|row| row.split_whitespace().collect()).collect();
        assert_eq!(
            split,
            [
                ["all-reduce", "2", "mapped", "16", "flat"],
                ["all-reduce", "2", "mapped", "32", "direct,pieces"],
                ["all-reduce", "2", "mapped", "64", "direct,ring"]
            ]
        );
        assert!(ways(&times, Tunable::Program(Collective::Reduce), &[8]).is_empty());
    }

    #[test]
    fn a_barrier_has_one_row_of_whatever_size() {
        let (mut times, sizes) = (Times::default(), Tunable::Barrier.sizes(&[8, 16]));
        for (way, time_us) in [(Ring, 3.0), (Flat, 2.0)] {
            times.add((Tunable::Barrier, sizes[0], way, Owned), time_us);
        }
        let chosen = ways(&times, Tunable::Barrier, sizes);
        let rows = rows(Tunable::Barrier, (2, Peers::Mapped), &chosen);
        let told: Vec<String> = rows.iter().map(Row::to_string).collect();
        let split: Vec<&str> = told[0].split_whitespace().collect();
        assert_eq!((split, rows.len()), (vec!["barrier", "2", "mapped", "any", "flat"], 1));
    }
}
