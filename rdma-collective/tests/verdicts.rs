//! Verdicts of transfers that were cut off: no block is called valid that is not.

mod common;
mod pair;

use std::thread;

use common::long;
use pair::{SHAPE, Setup, source_byte};
use rdma_collective::kv::{BlockVerdict, LinkOptions};
use rdma_core::Wire;
use rdma_core::fault::{Fault, FaultPlan, Rule};

#[test]
fn a_block_whose_checksum_was_not_checked_is_not_called_valid() {
    for wire in [Wire::Local, Wire::Tcp] {
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
