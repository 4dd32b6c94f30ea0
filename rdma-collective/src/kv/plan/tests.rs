//! Plans carried out on bytes, against a copy block by block.

use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;
use crate::kv::layout::tests::shapes;
use crate::kv::layout::{
    Attention, CacheType, Extent, HeadOrder, LayoutError, Model, Order, Shape, TensorParallel,
};

/// A source block and the destination block that it goes to.
type Pair = (u32, u32);

/// A direct write: source offset, destination offset and length.
type Direct = (u64, u64, u64);

fn direct(write: Write) -> Direct {
    let (End::Pool(source), End::Pool(destination)) = (write.source, write.destination) else {
        unreachable!("nothing is packed")
    };
    (source, destination, write.len)
}

fn plan_with(
    (source, destination): (&Layout, &Layout),
    pairs: &[Pair],
    options: &PlanOptions,
    wanted: Option<Wanted>,
) -> Result<Arc<Plan>, PlanError> {
    let route = Arc::new(Route::new(source, destination)?);
    let lists: [Vec<u32>; 2] =
        [pairs.iter().map(|pair| pair.0).collect(), pairs.iter().map(|pair| pair.1).collect()];
    Plan::of_parts(&route, [&lists[0], &lists[1]], options, wanted)
}

fn plan(source: &Layout, destination: &Layout, pairs: &[Pair], bound: u32) -> Result<Arc<Plan>, PlanError> {
    let options = PlanOptions { write_bytes_max: bound, ..PlanOptions::unpacked() };
    plan_with((source, destination), pairs, &options, None)
}

const SHAPE: Shape = Shape {
    layers: 3,
    blocks: 8,
    block_tokens: 2,
    attention: Attention::Grouped { kv_heads: 1, head_dim: 4 },
    cache_type: CacheType::Bf16,
    order: Order::LayerBlockPart,
    head_order: HeadOrder::Nhd,
    tensor_parallel: TensorParallel::WHOLE,
};

fn layout(shape: Shape) -> Layout {
    Layout::new(shape).unwrap()
}

/// Two pools that match, distinct pairs in any order, and a bound.
fn requests() -> impl Strategy<Value = (Layout, Layout, Vec<Pair>, u32)> {
    (shapes(), 1_u32..14)
        .prop_flat_map(|(shape, blocks)| {
            let common = shape.blocks.min(blocks) as usize;
            let ids = |blocks: u32, count: usize| {
                subsequence((0..blocks).collect::<Vec<_>>(), count).prop_shuffle()
            };
            (1..=common).prop_flat_map(move |count| {
                let source = layout(shape);
                let destination = layout(Shape { blocks, ..shape });
                // Sorted destinations make runs, shuffled ones make few.
                let destinations =
                    prop_oneof![ids(blocks, count), subsequence((0..blocks).collect::<Vec<_>>(), count),];
                let sources = prop_oneof![
                    ids(shape.blocks, count),
                    subsequence((0..shape.blocks).collect::<Vec<_>>(), count)
                ];
                (Just(source), Just(destination), sources, destinations, 1_u32..300)
            })
        })
        .prop_map(|(source, destination, sources, destinations, bound)| {
            (source, destination, sources.into_iter().zip(destinations).collect(), bound)
        })
}

/// The layer of each byte of a pool.
fn layer_of(layout: &Layout) -> Vec<u32> {
    let mut layers = vec![u32::MAX; layout.bytes() as usize];
    for (layer, block) in pairs(layout.layers(), layout.blocks()) {
        for extent in layout.extents(layer, block).unwrap() {
            layers[extent.offset as usize..(extent.offset + extent.len) as usize].fill(layer);
        }
    }
    layers
}

/// The expected destination: for each byte the index of a source byte, or nothing.
fn oracle(source: &Layout, destination: &Layout, pairs: &[Pair]) -> Vec<Option<u64>> {
    let mut bytes = vec![None; destination.bytes() as usize];
    for pair in pairs {
        for layer in 0..source.layers() {
            let each = |extent: Extent| extent.offset..extent.offset + extent.len;
            let from = source.extents(layer, pair.0).unwrap().flat_map(each);
            let to = destination.extents(layer, pair.1).unwrap().flat_map(each);
            for (from, to) in from.zip(to) {
                bytes[to as usize] = Some(from);
            }
        }
    }
    bytes
}

fn carry_out(writes: impl Iterator<Item = Write>, len: u64) -> Vec<Option<u64>> {
    let mut bytes = vec![None; len as usize];
    for (source, destination, len) in writes.map(direct) {
        for byte in 0..len {
            let old = bytes[(destination + byte) as usize].replace(source + byte);
            assert_eq!(old, None, "byte {byte} from {source} to {destination} was written before");
        }
    }
    bytes
}

proptest! {
    #[test]
    fn a_plan_writes_the_blocks_asked_for_once_and_nothing_else(
        (source, destination, pairs, bound) in requests()
    ) {
        let plan = plan(&source, &destination, &pairs, bound).unwrap();
        let expected = oracle(&source, &destination, &pairs);
        prop_assert_eq!(plan.bytes(), expected.iter().flatten().count() as u64);
        prop_assert_eq!(carry_out(plan.stream(), destination.bytes()), expected.clone());
        let options = PlanOptions { write_bytes_max: bound, by_layer: true, ..PlanOptions::unpacked() };
        let by_layer = plan_with((&source, &destination), &pairs, &options, None).unwrap();
        prop_assert_eq!(carry_out(by_layer.stream(), destination.bytes()), expected);
    }

    #[test]
    fn writes_keep_to_the_bound_and_adjacent_ones_do_not_fit_it_together(
        (source, destination, pairs, bound) in requests()
    ) {
        let plan = plan(&source, &destination, &pairs, bound).unwrap();
        let writes: Vec<Direct> = plan.stream().map(direct).collect();
        let piece = plan.writes().map(|(_, runs)| runs[0].len).max().unwrap();
        prop_assert!(writes.iter().all(|write| (1..=u64::from(bound)).contains(&write.2)));
        for pair in writes.windows(2) {
            let adjacent = pair[0].0 + pair[0].2 == pair[1].0 && pair[0].1 + pair[0].2 == pair[1].1;
            prop_assert!(!adjacent || pair[0].2 + piece.min(u64::from(bound)) > u64::from(bound));
        }
    }

    #[test]
    fn both_sides_make_the_same_plan_whatever_the_order_of_the_pairs(
        ((source, destination, pairs, bound), shuffled) in requests().prop_flat_map(|request| {
            let shuffled = Just(request.2.clone()).prop_shuffle();
            (Just(request), shuffled)
        })
    ) {
        let one = plan(&source, &destination, &pairs, bound).unwrap();
        let other = plan(&source, &destination, &shuffled, bound).unwrap();
        prop_assert!(one.stream().eq(other.stream()));
    }
}

#[test]
fn runs_become_one_write_a_layer_or_one_in_all() {
    let run = [(2, 5), (3, 6), (4, 7)];
    for (order, writes) in
        [(Order::LayerBlockPart, 3), (Order::LayerPartBlock, 6), (Order::BlockLayerPart, 1)]
    {
        let layout = layout(Shape { order, ..SHAPE });
        let plan = plan(&layout, &layout, &run, 1 << 20).unwrap();
        assert_eq!(plan.stream().count(), writes, "{order}");
    }
}

#[test]
fn block_ids_out_of_range_are_refused() {
    let (source, destination) = (layout(SHAPE), layout(Shape { blocks: 5, ..SHAPE }));
    let plan = |list: &[Pair]| plan(&source, &destination, list, 64).unwrap_err();
    assert_eq!(
        plan(&[(0, 0), (8, 1)]),
        PlanError::BlockOutOfRange { side: Side::Source, block: 8, blocks: 8 }
    );
    assert_eq!(
        plan(&[(0, 0), (1, 5)]),
        PlanError::BlockOutOfRange { side: Side::Destination, block: 5, blocks: 5 }
    );
    assert_eq!(
        plan(&[(0, u32::MAX)]),
        PlanError::BlockOutOfRange { side: Side::Destination, block: u32::MAX, blocks: 5 }
    );
}

#[test]
fn block_ids_given_twice_are_refused() {
    let layout = layout(SHAPE);
    let plan = |list: &[Pair]| plan(&layout, &layout, list, 64).unwrap_err();
    assert_eq!(plan(&[(3, 0), (1, 1), (3, 2)]), PlanError::BlockRepeated { side: Side::Source, block: 3 });
    assert_eq!(plan(&[(3, 4), (1, 4)]), PlanError::BlockRepeated { side: Side::Destination, block: 4 });
}

#[test]
fn requests_without_blocks_bound_or_common_layout_are_refused() {
    let here = layout(SHAPE);
    assert_eq!(plan(&here, &here, &[], 64).unwrap_err(), PlanError::NoBlocks);
    let one = [(0, 0)];
    assert_eq!(plan(&here, &here, &one, 0).unwrap_err(), PlanError::BoundZero);
    let there = layout(Shape { block_tokens: 3, ..SHAPE });
    assert!(matches!(
        plan(&here, &there, &one, 64).unwrap_err(),
        PlanError::Layout(LayoutError::Differs { field: "tokens a block", .. })
    ));
}

proptest! {
    /// In every order of memory, layer by layer: no write has two layers, counts are those of the layers, and a choice
    /// of blocks moves exactly those blocks.
    #[test]
    fn a_plan_by_layer_and_of_some_blocks_writes_those_and_no_others(
        shape in shapes(),
        bound in 1_u32..300,
        by_layer in any::<bool>(),
        seed in any::<u64>(),
    ) {
        use crate::kv::verdict::{BlockVerdict, Verdicts};
        let layout = Layout::new(shape).unwrap();
        let blocks: Vec<u32> = (0..shape.blocks).rev().collect();
        let pairs: Vec<Pair> = (0..).zip(blocks.iter().copied()).collect();
        let mut verdicts = Verdicts::new(shape.layers, &blocks[..], BlockVerdict::Valid);
        for (layer, place) in crate::kv::plan::pairs(shape.layers, shape.blocks) {
            if seed.rotate_left(layer * 5 + place) & 1 == 1 {
                verdicts.set(layer, place as usize, BlockVerdict::Missing);
            }
        }
        let wanted = verdicts.wanted();
        let options = PlanOptions { write_bytes_max: bound, by_layer, ..PlanOptions::unpacked() };
        let plan = plan_with((&layout, &layout), &pairs, &options, wanted.clone()).unwrap();
        let layer_of = layer_of(&layout);
        let mut written = vec![0_u8; layout.bytes() as usize];
        let Count { writes: total, ends, .. } = plan.count(u32::MAX - 1);
        let mut writes = 0;
        for (index, (_, destination, len)) in (0_u32..).zip(plan.stream().map(direct)) {
            writes += 1;
            let range = destination as usize..(destination + len) as usize;
            written[range].iter_mut().for_each(|byte| *byte += 1);
            if by_layer {
                let layer = ends.partition_point(|end| *end <= index) as u32;
                prop_assert!(layer_of[destination as usize..(destination + len) as usize].iter().all(|of| *of == layer));
            }
        }
        prop_assert_eq!((writes, ends.last().copied()), (total, by_layer.then_some(total)));
        for (layer, place) in crate::kv::plan::pairs(shape.layers, shape.blocks) {
            let times = u8::from(wanted.as_ref().is_none_or(|wanted| wanted.has(layer, place)));
            for extent in layout.extents(layer, blocks[place as usize]).unwrap() {
                let bytes = &written[extent.offset as usize..(extent.offset + extent.len) as usize];
                prop_assert!(bytes.iter().all(|byte| *byte == times));
            }
        }
        prop_assert_eq!(plan.count(0).writes, 1.min(total));
        // A layer by itself has the writes that it has among all.
        let all: Vec<Write> = plan.stream().collect();
        for layer in (0..shape.layers).filter(|_| by_layer) {
            let writes = writes_of(&ends, layer as usize);
            let writes = &all[writes.start as usize..writes.end as usize];
            prop_assert!(plan.stream_layer(layer).eq(writes.iter().copied()));
        }
        prop_assert!(!by_layer || plan.stream_layer(shape.layers).next().is_none());
    }
}

#[test]
fn adjacent_blocks_become_one_write_in_each_layer() {
    let layout = Layout::new(Model::DEEPSEEK_V3.shape(64, 100, Order::LayerBlockPart)).unwrap();
    let plan = plan(&layout, &layout, &[(7, 50), (8, 51), (30, 2)], 1 << 20).unwrap();
    assert_eq!(plan.stream().count(), 61 * 2);
    assert_eq!(plan.bytes(), 3 * 64 * 70272);
}
