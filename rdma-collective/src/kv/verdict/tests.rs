//! Blocks with a missing byte, writes that nobody announced, and the text of a large request.

use super::*;
use crate::kv::layout::Layout;
use crate::kv::layout::tests::shapes;
use crate::kv::plan::{End, PlanOptions, Route};
use proptest::prelude::*;

proptest! {
    /// The verdict on a block is that of its bytes, one by one.
    #[test]
    fn a_block_is_missing_when_a_byte_of_it_is(
        shape in shapes(),
        bound in 1_u32..300,
        seed in any::<u64>(),
    ) {
        let layout = Layout::new(shape).unwrap();
        let blocks: Vec<u32> = (0..shape.blocks).rev().step_by(2).collect();
        let sources: Vec<u32> = (0..blocks.len() as u32).collect();
        let route = Arc::new(Route::new(&layout, &layout).unwrap());
        let options = PlanOptions { write_bytes_max: bound, ..PlanOptions::unpacked() };
        let plan = Plan::new(&route, [&sources, &blocks], &options).unwrap();
        let mut arrived = Arrived::default();
        arrived.announce(plan.stream().count() as u32);
        let mut there = vec![false; layout.bytes() as usize];
        for (index, write) in (0..).zip(plan.stream()) {
            let End::Pool(to) = write.destination else { unreachable!("nothing is packed") };
            if seed.rotate_left(index) % 3 > 0 {
                prop_assert!(arrived.note(index));
                prop_assert!(!arrived.note(index), "twice");
                there[to as usize..(to + write.len) as usize].fill(true);
            }
        }
        let verdicts = Verdicts::arrived(&blocks[..], &plan, &arrived);
        for layer in 0..shape.layers {
            for (place, &block) in blocks.iter().enumerate() {
                let whole = layout.extents(layer, block).unwrap().all(|extent| {
                    there[extent.offset as usize..(extent.offset + extent.len) as usize].iter().all(|byte| *byte)
                });
                let expected = if whole { BlockVerdict::Valid } else { BlockVerdict::Missing };
                prop_assert_eq!(verdicts.get(layer, place), Some(expected));
            }
        }
        let missing = verdicts.count(BlockVerdict::Missing);
        prop_assert_eq!((verdicts.invalid().count(), verdicts.all_valid()), (missing, missing == 0));
    }
}

#[test]
fn a_request_of_any_size_is_shown_in_a_line() {
    let mut verdicts = Verdicts::new(80, [7; 10_000], BlockVerdict::Valid);
    verdicts.set(79, 9_999, BlockVerdict::Missing);
    let expected = "Verdicts { layers: 80, blocks: 10000, valid: 799999, missing: 1, corrupt: 0 }";
    assert_eq!(format!("{verdicts:?}"), expected);
}

#[test]
fn what_was_not_announced_cannot_arrive() {
    let mut arrived = Arrived::default();
    assert!(arrived.note(100), "before the announcement anything may");
    assert!(!arrived.announce(100));
    assert!(arrived.announce(101) && !arrived.note(101) && arrived.note(0));
    assert!(!arrived.is_complete());
    assert_eq!((arrived.count(), arrived.expected()), (2, 101));
}
