//! Plans between any two layouts, against an oracle that goes element by element.

#[path = "../common/mod.rs"]
mod common;
mod family;
mod moved;
mod oracle;
#[path = "../pair/mod.rs"]
mod pair;
mod pools;
mod refusals;
mod shared;
mod tokens;

use std::sync::Arc;

use oracle::{Kinds, Pair};
use rdma_collective::kv::plan::{End, Plan, PlanOptions, Route, Run, Write};

/// Pairs of layouts that are tried.
const PAIRS: u64 = 30_000;
/// Pairs that each kind must at least have.
const EACH: u32 = 1_000;

/// The bytes that a plan moves, as (source offset, destination offset) of each byte, carried out as the two ends would:
/// packed bytes go through staging memory.
fn carry_out(writes: impl Iterator<Item = (Write, Vec<Run>)>, options: &PlanOptions) -> Vec<(u64, u64)> {
    let mut moved = Vec::new();
    for (write, runs) in writes {
        assert!((1..=u64::from(options.write_bytes_max)).contains(&write.len));
        let packed = [write.source, write.destination].contains(&End::Staging);
        assert!(!packed || write.len <= u64::from(options.stage_bytes), "{write:?}");
        assert!(!options.pulls || write.source != End::Staging, "the source of a pull packs nothing");
        assert!(options.unpacks || write.destination != End::Staging, "the destination does not unpack");
        // Byte `at` of the write comes from the run's byte where the source packs, and goes where the destination
        // unpacks.
        let pieces = runs.iter().flat_map(|run| run.pieces());
        let bytes = pieces
            .flat_map(|(source, destination, len)| (0..len).map(move |at| (source + at, destination + at)));
        let mut count = 0;
        for (at, (source, destination)) in (0..).zip(bytes) {
            let from = if let End::Pool(start) = write.source { start + at } else { source };
            let to = if let End::Pool(start) = write.destination { start + at } else { destination };
            moved.push((from, to));
            count += 1;
        }
        assert_eq!(count, write.len);
    }
    moved
}

/// Plans a request, and holds it against the oracle.
fn check(pair: &Pair) -> Result<(), String> {
    let [source, destination] = &pair.layouts;
    let route = match Route::new(&source.layout, &destination.layout) {
        Ok(route) => Arc::new(route),
        Err(refused) if pair.expected().is_empty() => {
            let text = refused.to_string();
            return if text.contains("takes no head") || text.contains("layers of the model") {
                Ok(())
            } else {
                Err(text)
            };
        }
        Err(refused) => return Err(format!("refused: {refused}")),
    };
    let options = &pair.options;
    let plan =
        Plan::new(&route, [&pair.blocks[0], &pair.blocks[1]], options).map_err(|error| error.to_string())?;
    let mut moved = carry_out(plan.writes(), options);
    let mut expected = pair.expected();
    let size = plan.size();
    if size.bytes != moved.len() as u64 {
        return Err(format!("{} bytes are counted, {} are moved", size.bytes, moved.len()));
    }
    moved.sort_unstable();
    expected.sort_unstable();
    if moved == expected { Ok(()) } else { Err(differences(&moved, &expected)) }
}

fn differences(moved: &[(u64, u64)], expected: &[(u64, u64)]) -> String {
    let missing = expected.iter().find(|byte| moved.binary_search(byte).is_err());
    let extra = moved.iter().find(|byte| expected.binary_search(byte).is_err());
    format!("{} bytes moved, {} expected; missing {missing:?}, extra {extra:?}", moved.len(), expected.len())
}

#[test]
fn every_element_arrives_once_and_none_elsewhere() {
    let mut kinds = Kinds::default();
    for seed in 0..PAIRS {
        let pair = Pair::random(seed);
        kinds.count(&pair);
        if let Err(error) = check(&pair) {
            panic!("seed {seed}: {error}\n{pair:?}");
        }
    }
    println!("{kinds}");
    kinds.assert_each_at_least(EACH);
}

/// The oracle itself: a plan whose heads are shifted by one is found.
#[test]
fn heads_that_are_off_by_one_are_found() {
    let mut found = 0;
    for seed in 0..200 {
        let mut pair = Pair::random(seed);
        if check(&pair).is_ok() && pair.shift_heads() {
            found += u32::from(check(&pair).is_err());
            assert!(check(&pair).is_err(), "seed {seed}");
        }
    }
    assert!(found > 50, "{found} were shifted");
}
