//! The fuzz target of plans: any subset of a request that a peer may ask for is planned and checked.

use std::sync::Arc;

use super::{Count, End, Plan, PlanOptions, Route, Wanted};
use crate::kv::layout::Layout;

/// Most writes that are checked.
const WRITES_MAX: usize = 2000;

/// Plans the subset of a request that `words` describe, whole and layer by layer, and asserts that writes keep to
/// their bounds, and that both sides agree on their number and their bytes.
pub(crate) fn fuzz(layouts: [&Layout; 2], blocks: [&[u32]; 2], words: &[u32], options: &PlanOptions) {
    let [source, destination] = layouts;
    let Ok(route) = Route::new(source, destination) else { return };
    let route = Arc::new(route);
    let layers = destination.layers();
    let wanted = Wanted::from_words(layers, blocks[1].len() as u32, words);
    for by_layer in [false, true] {
        let options = PlanOptions { by_layer, ..options.clone() };
        let Ok(plan) = Plan::of_parts(&route, blocks, &options, wanted.clone()) else { return };
        let Count { writes: count, ends, .. } = plan.count(WRITES_MAX as u32);
        let mut stream = plan.stream();
        let (mut writes, mut bytes) = (0, 0);
        while let Some(write) = stream.next().filter(|_| writes <= WRITES_MAX as u32) {
            writes += 1;
            assert!((1..=u64::from(options.write_bytes_max)).contains(&write.len));
            assert_eq!(stream.parts().iter().map(super::Run::bytes).sum::<u64>(), write.len);
            for (at, layout) in [(write.source, source), (write.destination, destination)] {
                let End::Pool(offset) = at else { continue };
                assert!(offset + write.len <= layout.bytes());
            }
            bytes += write.len;
            let touched = stream.parts().iter().map(super::Run::touches);
            let touched: Vec<_> = touched.flat_map(|(layers, _)| layers).collect();
            assert!(touched.iter().all(|layer| *layer < layers));
            assert!(!by_layer || touched.iter().all(|layer| *layer == touched[0]), "a write of two layers");
        }
        assert_eq!(count, writes, "both sides have to agree on the number");
        assert_eq!(ends.len(), if by_layer { source.layers() as usize } else { 0 });
        assert!(ends.is_sorted() && ends.last().is_none_or(|last| *last == count));
        if writes <= WRITES_MAX as u32 {
            assert_eq!(bytes, plan.bytes());
        }
    }
}
