//! The fuzz target of plans: any subset of a request that a peer may ask for is planned and checked.

use std::sync::Arc;

use super::{BlockPair, BlockPlan, PlanOptions, Wanted};
use crate::kv::layout::Layout;

/// Most writes that are checked.
const WRITES_MAX: usize = 2000;
/// Largest shape: beyond it a single case takes longer than a fuzzer has.
const LAYERS_MAX: u32 = 4096;

/// Plans the subset of a request that `words` describe, whole and layer by layer, and asserts that exactly those
/// bytes are moved, once each and in bounds.
pub(crate) fn fuzz(layout: Layout, pairs: &[BlockPair], words: &[u32], write_bytes_max: u32) {
    let layers = layout.shape().layers;
    if layers > LAYERS_MAX {
        return;
    }
    let wanted = Wanted::from_words(layers, pairs.len() as u32, words);
    for by_layer in [false, true] {
        let parts = PlanOptions { by_layer, wanted: wanted.as_ref() };
        let Ok(plan) = BlockPlan::of_parts((layout, layout), pairs, write_bytes_max, parts) else { return };
        let plan = Arc::new(plan);
        let (count, ends) = plan.count(WRITES_MAX as u32);
        let writes: Vec<_> = Arc::clone(&plan).into_descriptors().take(WRITES_MAX + 1).collect();
        assert_eq!(count as usize, writes.len(), "both sides have to agree on the number");
        assert_eq!(ends.len(), if by_layer { layers as usize } else { 0 });
        assert!(ends.is_sorted() && ends.last().is_none_or(|last| *last == count));
        let mut bytes = 0;
        for (index, write) in (0..).zip(&writes) {
            assert!((1..=u64::from(write_bytes_max)).contains(&write.len));
            assert!(write.offset_local + write.len <= layout.bytes());
            assert!(write.offset_remote + write.len <= layout.bytes());
            bytes += write.len;
            if by_layer {
                let layer = ends.partition_point(|end| *end <= index) as u32;
                let last = write.offset_remote + write.len - 1;
                assert_eq!(layout.locate(write.offset_remote).0, layer);
                assert_eq!(layout.locate(last).0, layer, "a write of two layers");
            }
        }
        let blocks = wanted.as_ref().map_or(u64::from(layers) * pairs.len() as u64, Wanted::count);
        if writes.len() <= WRITES_MAX {
            assert_eq!(bytes, blocks * layout.layer_block_bytes());
        }
    }
}
