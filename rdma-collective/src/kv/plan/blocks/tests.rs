//! Plans carried out on bytes, against a copy block by block.

use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;
use crate::kv::layout::order::tests::shapes;
use crate::kv::layout::{Attention, CacheType, Extent, HeadOrder, LayoutError, Model, Shape, TensorParallel};

/// Writes of a plan by nested iterators: what the numbered [`Ranges`] of production have to agree with.
impl BlockPlan {
    pub(in crate::kv) fn descriptors(&self) -> impl Iterator<Item = WriteDescriptor> + '_ {
        self.merged(0..self.source.shape().layers)
    }

    fn layer(&self, layer: u32) -> impl Iterator<Item = WriteDescriptor> + '_ {
        self.merged(layer..layer + 1)
    }

    /// Bytes of the whole request.
    fn bytes(&self) -> u64 {
        self.pairs.len() as u64 * self.source.block_bytes()
    }

    fn merged(&self, layers: Range<u32>) -> impl Iterator<Item = WriteDescriptor> + '_ {
        Merge::new(self.ranges(layers), self.write_bytes_max)
    }

    /// A range for each layer, piece and pair, in the order of the source's memory.
    fn ranges(&self, layers: Range<u32>) -> impl Iterator<Item = WriteDescriptor> + '_ {
        let pieces = self.source.pieces();
        let pairs = self.pairs.iter();
        let order = self.source.shape().order;
        let by_block = (order == Order::BlockLayerPart).then(|| {
            let layers = layers.clone();
            pairs.clone().flat_map(move |pair| layers.clone().map(move |layer| (layer, 0, pair)))
        });
        let by_layer = (order != Order::BlockLayerPart).then(|| {
            layers
                .flat_map(move |layer| (0..pieces).map(move |piece| (layer, piece)))
                .flat_map(move |(layer, piece)| pairs.clone().map(move |pair| (layer, piece, pair)))
        });
        let places = by_block.into_iter().flatten().chain(by_layer.into_iter().flatten());
        places.map(|(layer, piece, pair)| {
            let from = self.source.extent(layer, piece, pair.source);
            let to = self.destination.extent(layer, piece, pair.destination);
            WriteDescriptor { offset_local: from.offset, offset_remote: to.offset, len: from.len }
        })
    }
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

fn pairs(pairs: &[(u32, u32)]) -> Vec<BlockPair> {
    pairs.iter().map(|&(source, destination)| BlockPair { source, destination }).collect()
}

/// Two pools that match, distinct pairs in any order, and a bound.
fn requests() -> impl Strategy<Value = (Layout, Layout, Vec<BlockPair>, u32)> {
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
            let pairs = sources.into_iter().zip(destinations);
            let pairs = pairs.map(|(source, destination)| BlockPair { source, destination }).collect();
            (source, destination, pairs, bound)
        })
}

/// The expected destination: for each byte the index of a source byte, or nothing.
fn oracle(source: &Layout, destination: &Layout, pairs: &[BlockPair]) -> Vec<Option<u64>> {
    let mut bytes = vec![None; destination.bytes() as usize];
    for pair in pairs {
        for layer in 0..source.shape().layers {
            let from: Vec<Extent> = source.extents(layer, pair.source).unwrap().collect();
            let to: Vec<Extent> = destination.extents(layer, pair.destination).unwrap().collect();
            for (from, to) in from.into_iter().zip(to) {
                for byte in 0..from.len {
                    bytes[(to.offset + byte) as usize] = Some(from.offset + byte);
                }
            }
        }
    }
    bytes
}

fn carry_out(writes: impl Iterator<Item = WriteDescriptor>, len: u64) -> Vec<Option<u64>> {
    let mut bytes = vec![None; len as usize];
    for write in writes {
        for byte in 0..write.len {
            let old = bytes[(write.offset_remote + byte) as usize].replace(write.offset_local + byte);
            assert_eq!(old, None, "byte {byte} of {write:?} was written before");
        }
    }
    bytes
}

proptest! {
    #[test]
    fn descriptors_are_the_same_with_and_without_their_plan((source, destination, pairs, bound) in requests()) {
        let plan = Arc::new(BlockPlan::new(source, destination, &pairs, bound).unwrap());
        let lent: Vec<_> = plan.descriptors().collect();
        prop_assert!(Arc::clone(&plan).into_descriptors().eq(lent));
    }

    #[test]
    fn a_plan_writes_the_blocks_asked_for_once_and_nothing_else(
        (source, destination, pairs, bound) in requests()
    ) {
        let plan = BlockPlan::new(source, destination, &pairs, bound).unwrap();
        let expected = oracle(&source, &destination, &pairs);
        prop_assert_eq!(plan.bytes(), expected.iter().flatten().count() as u64);
        prop_assert_eq!(carry_out(plan.descriptors(), destination.bytes()), expected.clone());
        let by_layer = (0..source.shape().layers).flat_map(|layer| plan.layer(layer));
        prop_assert_eq!(carry_out(by_layer, destination.bytes()), expected);
    }

    #[test]
    fn writes_keep_to_the_bound_and_adjacent_ones_do_not_fit_it_together(
        (source, destination, pairs, bound) in requests()
    ) {
        let plan = BlockPlan::new(source, destination, &pairs, bound).unwrap();
        let writes: Vec<WriteDescriptor> = plan.descriptors().collect();
        let piece = source.extents(0, 0).unwrap().next().unwrap().len;
        prop_assert!(writes.iter().all(|write| (1..=u64::from(bound)).contains(&write.len)));
        for pair in writes.windows(2) {
            let adjacent = pair[0].offset_local + pair[0].len == pair[1].offset_local
                && pair[0].offset_remote + pair[0].len == pair[1].offset_remote;
            prop_assert!(!adjacent || pair[0].len + piece.min(u64::from(bound)) > u64::from(bound));
        }
        if piece <= u64::from(bound) {
            prop_assert!(writes.iter().all(|write| write.len.is_multiple_of(piece)), "blocks stay whole");
        }
    }

    #[test]
    fn both_sides_make_the_same_plan_whatever_the_order_of_the_pairs(
        ((source, destination, pairs, bound), shuffled) in requests().prop_flat_map(|request| {
            let shuffled = Just(request.2.clone()).prop_shuffle();
            (Just(request), shuffled)
        })
    ) {
        let one = BlockPlan::new(source, destination, &pairs, bound).unwrap();
        let other = BlockPlan::new(source, destination, &shuffled, bound).unwrap();
        prop_assert!(one.descriptors().eq(other.descriptors()));
    }
}

#[test]
fn runs_become_one_write_a_layer_or_one_in_all() {
    let run = pairs(&[(2, 5), (3, 6), (4, 7)]);
    for (order, writes) in
        [(Order::LayerBlockPart, 3), (Order::LayerPartBlock, 6), (Order::BlockLayerPart, 1)]
    {
        let layout = layout(Shape { order, ..SHAPE });
        let plan = BlockPlan::new(layout, layout, &run, 1 << 20).unwrap();
        assert_eq!(plan.descriptors().count(), writes, "{order}");
    }
}

#[test]
fn block_ids_out_of_range_are_refused() {
    let (source, destination) = (layout(SHAPE), layout(Shape { blocks: 5, ..SHAPE }));
    let plan = |list: &[(u32, u32)]| BlockPlan::new(source, destination, &pairs(list), 64).unwrap_err();
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
    let plan = |list: &[(u32, u32)]| BlockPlan::new(layout, layout, &pairs(list), 64).unwrap_err();
    assert_eq!(plan(&[(3, 0), (1, 1), (3, 2)]), PlanError::BlockRepeated { side: Side::Source, block: 3 });
    assert_eq!(plan(&[(3, 4), (1, 4)]), PlanError::BlockRepeated { side: Side::Destination, block: 4 });
}

#[test]
fn requests_without_blocks_bound_or_common_layout_are_refused() {
    let here = layout(SHAPE);
    assert_eq!(BlockPlan::new(here, here, &[], 64).unwrap_err(), PlanError::NoBlocks);
    let one = pairs(&[(0, 0)]);
    assert_eq!(BlockPlan::new(here, here, &one, 0).unwrap_err(), PlanError::BoundZero);
    let there = layout(Shape { block_tokens: 4, ..SHAPE });
    assert!(matches!(
        BlockPlan::new(here, there, &one, 64).unwrap_err(),
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
        let pairs: Vec<_> =
            (0..).zip(&blocks).map(|(source, &destination)| BlockPair { source, destination }).collect();
        let mut verdicts = Verdicts::new(shape.layers, &blocks, BlockVerdict::Valid);
        for (layer, place) in crate::kv::plan::pairs(shape.layers, shape.blocks) {
            if seed.rotate_left(layer * 5 + place) & 1 == 1 {
                verdicts.set(layer, place as usize, BlockVerdict::Missing);
            }
        }
        let wanted = Wanted::invalid(&verdicts);
        let parts = PlanOptions { by_layer, wanted: wanted.as_ref() };
        let plan = Arc::new(BlockPlan::of_parts((layout, layout), &pairs, bound, parts).unwrap());
        let mut written = vec![0_u8; layout.bytes() as usize];
        let (total, ends) = plan.count(u32::MAX - 1);
        let mut writes = 0;
        for (index, write) in (0_u32..).zip(Arc::clone(&plan).into_descriptors()) {
            writes += 1;
            let range = write.offset_remote as usize..(write.offset_remote + write.len) as usize;
            written[range].iter_mut().for_each(|byte| *byte += 1);
            if by_layer {
                let layer = ends.partition_point(|end| *end <= index) as u32;
                prop_assert_eq!(layout.locate(write.offset_remote).0, layer);
                prop_assert_eq!(layout.locate(write.offset_remote + write.len - 1).0, layer);
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
        prop_assert_eq!(plan.count(0).0, 1.min(total));
    }
}

#[test]
fn adjacent_blocks_become_one_write_in_each_layer() {
    let layout = Layout::new(Model::DEEPSEEK_V3.shape(64, 100, Order::LayerBlockPart)).unwrap();
    let pairs = [(7, 50), (8, 51), (30, 2)].map(|(source, destination)| BlockPair { source, destination });
    let plan = BlockPlan::new(layout, layout, &pairs, 1 << 20).unwrap();
    assert_eq!(plan.descriptors().count(), 61 * 2);
    assert_eq!(plan.bytes(), 3 * 64 * 70272);
}
