//! Verdicts of transfers that were cut off: no block is called valid that is not.

use std::thread;

use crate::common::{WIRES, long};
use crate::pair::{Pair, SHAPE, Setup, source_byte};
use rdma_collective::kv::{BlockVerdict, LinkOptions, Verdicts};
use rdma_core::fault::{Fault, FaultPlan, Rule};

#[test]
fn a_block_whose_checksum_was_not_checked_is_not_called_valid() {
    for wire in WIRES {
        let mut corrupted = 0;
        for nth in 3..9 {
            // A write is a part of a block, keys first: the first values that arrive make blocks whole.
            let plan = FaultPlan::seeded(nth)
                .with(Rule::new(Fault::Corrupt).nth(nth))
                .with(Rule::new(Fault::Kill).nth(nth + 40));
            let options = LinkOptions { write_bytes_max: 128, checksums: true, ..LinkOptions::default() };
            let pair = Setup { wire, options, faults: [None, Some(plan)], ..Setup::default() }.connect();
            let blocks: Vec<u32> = (0..SHAPE.blocks).collect();
            let error = thread::scope(|scope| {
                scope.spawn(|| pair.prefill.push(1, &blocks, long()).unwrap().wait().unwrap_err());
                pair.decode.grant(1, &blocks, long()).unwrap().wait().unwrap_err()
            });
            let mut bytes = vec![0; pair.destination.layout().layer_block_bytes() as usize];
            for layer in 0..SHAPE.layers {
                for block in 0..SHAPE.blocks {
                    pair.destination.read(layer, block, 0, &mut bytes).unwrap();
                    let wrong =
                        (0..).zip(&bytes).filter(|(at, byte)| **byte != source_byte(layer, block, *at));
                    let wrong = wrong.count();
                    let verdict = error.verdicts.get(layer, block as usize);
                    assert!(
                        wrong == 0 || verdict != Some(BlockVerdict::Valid),
                        "block {block} in layer {layer}"
                    );
                    corrupted += u32::from(wrong == 1);
                }
            }
        }
        assert!(corrupted > 0, "nothing was corrupted");
    }
}

/// Moves blocks 0 and 1 into 2 and 3, as far as `verdicts` does not say that they are there; the bytes that were moved.
fn resume(pair: &Pair, verdicts: &Verdicts) -> u64 {
    thread::scope(|scope| {
        scope.spawn(|| pair.prefill.push(9, &[0, 1], long()).unwrap().wait().unwrap());
        let received = pair.decode.grant_missing(9, verdicts, long()).unwrap().wait().unwrap();
        assert!(received.verdicts.all_valid());
        pair.assert_true(&[(0, 2), (1, 3)], &received.verdicts);
        received.bytes
    })
}

fn moved(pair: &Pair) -> Verdicts {
    thread::scope(|scope| {
        scope.spawn(|| pair.prefill.push(1, &[0, 1], long()).unwrap().wait().unwrap());
        pair.decode.grant(1, &[2, 3], long()).unwrap().wait().unwrap().verdicts
    })
}

#[test]
fn blocks_that_were_filled_or_written_since_are_not_called_valid_when_a_transfer_is_resumed() {
    let pair = Setup::default().connect();
    let block_bytes = pair.destination.layout().block_bytes();
    let verdicts = moved(&pair);
    assert_eq!(resume(&pair, &verdicts), 0);
    let verdicts = moved(&pair);
    // Another request takes one of them.
    pair.transfer(2, &[(7, 3)]);
    assert_eq!(resume(&pair, &verdicts), block_bytes);
    let verdicts = moved(&pair);
    pair.destination.write(1, 2, 0, &[0x77; 8]).unwrap();
    assert_eq!(resume(&pair, &verdicts), block_bytes);
}

#[test]
fn verdicts_on_another_pool_say_nothing_of_this_one() {
    let (pair, other) = (Setup::default().connect(), Setup::default().connect());
    let verdicts = moved(&other);
    assert_eq!(resume(&pair, &verdicts), 2 * pair.destination.layout().block_bytes());
}
