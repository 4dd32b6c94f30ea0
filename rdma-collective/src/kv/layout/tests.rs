//! Offsets against a walk over the nested dimensions, and shapes that are refused.

use proptest::prelude::*;

use super::*;
const SMALL: Shape = Shape {
    layers: 3,
    blocks: 5,
    block_tokens: 4,
    attention: Attention::Grouped { kv_heads: 2, head_dim: 8 },
    cache_type: CacheType::Bf16,
    order: Order::LayerBlockPart,
    head_order: HeadOrder::Nhd,
    tensor_parallel: TensorParallel::WHOLE,
};

/// The offset of every (layer, part, block), by walking the dimensions as nested loops.
fn walk(shape: &Shape, part_bytes: u64) -> Vec<((u32, u32, u32), u64)> {
    let parts = shape.attention.parts();
    let (outer, middle, inner) = match shape.order {
        Order::LayerBlockPart => (shape.layers, shape.blocks, parts),
        Order::LayerPartBlock => (shape.layers, parts, shape.blocks),
        Order::BlockLayerPart => (shape.blocks, shape.layers, parts),
    };
    let mut offset = 0;
    let mut all = Vec::new();
    for a in 0..outer {
        for b in 0..middle {
            for c in 0..inner {
                let place = match shape.order {
                    Order::LayerBlockPart => (a, c, b),
                    Order::LayerPartBlock => (a, b, c),
                    Order::BlockLayerPart => (b, c, a),
                };
                all.push((place, offset));
                offset += part_bytes;
            }
        }
    }
    all
}

pub(in crate::kv) fn shapes() -> impl Strategy<Value = Shape> {
    let attention = prop_oneof![
        (1_u32..4, 1_u32..5).prop_map(|(kv_heads, head_dim)| Attention::Grouped { kv_heads, head_dim }),
        (1_u32..9).prop_map(|dim| Attention::Latent { dim }),
        (1_u32..4, 1_u32..5).prop_map(|(heads, elements)| Attention::Recurrent { heads, elements }),
    ];
    let order =
        prop_oneof![Just(Order::LayerBlockPart), Just(Order::LayerPartBlock), Just(Order::BlockLayerPart)];
    let cache_type = prop::sample::select(CacheType::ALL);
    let head_order = prop_oneof![Just(HeadOrder::Nhd), Just(HeadOrder::Hnd)];
    let parallel = (0_u32..3, 1_u32..4).prop_map(|(rank, size)| TensorParallel { rank: rank % size, size });
    let kind = (attention, cache_type, order, head_order, parallel);
    (1_u32..5, 1_u32..12, 1_u32..5, kind).prop_filter_map(
        "a latent cache has one part",
        |(layers, blocks, block_tokens, (attention, cache_type, order, head_order, tensor_parallel))| {
            let shape = Shape {
                layers,
                blocks,
                block_tokens,
                attention,
                cache_type,
                order,
                head_order,
                tensor_parallel,
            };
            Layout::new(shape).is_ok().then_some(shape)
        },
    )
}

proptest! {
    #[test]
    fn extents_are_where_nested_loops_put_them(shape in shapes()) {
        let layout = Layout::new(shape).unwrap();
        let heads = shape.tensor_parallel.heads(shape.attention).unwrap();
        let elements = (heads.end - heads.start) * shape.attention.elements();
        let part_bytes = u64::from(elements * shape.cache_type.size() * shape.block_tokens);
        let walked = walk(&shape, part_bytes);
        prop_assert_eq!(layout.bytes(), walked.len() as u64 * part_bytes);
        for ((layer, part, block), offset) in walked {
            let extents: Vec<Extent> = layout.extents(layer, block).unwrap().collect();
            // Byte `part_bytes * part` of a block in a layer, whether its parts are one range or two.
            let found = match extents[..] {
                [whole] => whole.offset + u64::from(part) * part_bytes,
                [key, value] => [key, value][part as usize].offset,
                _ => unreachable!("one range or two"),
            };
            prop_assert_eq!(found, offset);
            prop_assert_eq!(extents.iter().map(|e| e.len).sum::<u64>(), layout.layer_block_bytes());
        }
    }

    #[test]
    fn any_dimensions_make_a_layout_in_bounds_or_an_error(
        layers: u32, blocks: u32, block_tokens: u32, kv_heads: u32, head_dim: u32,
    ) {
        let attention = Attention::Grouped { kv_heads, head_dim };
        let shape = Shape { layers, blocks, block_tokens, attention, ..SMALL };
        if let Ok(layout) = Layout::new(shape) && u64::from(block_tokens) * u64::from(kv_heads) < 1 << 20 {
            let last = layout.extents(layers - 1, blocks - 1).unwrap().last().unwrap();
            prop_assert_eq!(last.offset + last.len, layout.bytes());
        }
    }
}

#[test]
fn sizes_follow_from_the_shape() {
    let layout = Layout::new(SMALL).unwrap();
    assert_eq!(layout.layer_block_bytes(), 2 * 2 * 8 * 2 * 4);
    assert_eq!(layout.block_bytes(), 3 * 256);
    assert_eq!(layout.token_bytes(), 3 * 64);
    assert_eq!(layout.bytes(), 5 * 3 * 256);
    assert_eq!(layout.check_memory(3840), Ok(()));
    assert_eq!(layout.check_memory(3839), Err(LayoutError::MemoryTooSmall { need: 3840, len: 3839 }));
}

#[test]
fn a_dimension_of_zero_is_refused_by_name() {
    let grouped = |kv_heads, head_dim| Attention::Grouped { kv_heads, head_dim };
    for (shape, dimension) in [
        (Shape { layers: 0, ..SMALL }, "layers"),
        (Shape { blocks: 0, ..SMALL }, "blocks"),
        (Shape { block_tokens: 0, ..SMALL }, "tokens a block"),
        (Shape { attention: grouped(0, 8), ..SMALL }, "key-value heads"),
        (Shape { attention: grouped(2, 0), ..SMALL }, "elements a head"),
        (Shape { attention: Attention::Latent { dim: 0 }, ..SMALL }, "elements a head"),
    ] {
        assert_eq!(Layout::new(shape), Err(LayoutError::Zero { dimension }));
    }
}

#[test]
fn sizes_that_overflow_are_refused() {
    for shape in [
        Shape { layers: u32::MAX, blocks: u32::MAX, block_tokens: u32::MAX, ..SMALL },
        Shape { attention: Attention::Latent { dim: u32::MAX }, block_tokens: u32::MAX, blocks: 1, ..SMALL },
        // Fits 64 bits, but no address space.
        Shape { layers: 4096, blocks: u32::MAX, block_tokens: 1 << 20, ..SMALL },
        Shape { attention: Attention::Grouped { kv_heads: u32::MAX, head_dim: u32::MAX }, ..SMALL },
    ] {
        assert_eq!(Layout::new(shape), Err(LayoutError::TooLarge { shape }));
    }
}

#[test]
fn a_layer_or_block_that_is_not_there_is_refused() {
    let layout = Layout::new(SMALL).unwrap();
    assert_eq!(layout.extents(3, 0).err(), Some(LayoutError::NoSuchLayer { layer: 3, layers: 3 }));
    assert_eq!(layout.extents(0, 5).err(), Some(LayoutError::NoSuchBlock { block: 5, blocks: 5 }));
}

#[test]
fn a_latent_cache_has_nothing_to_split() {
    let attention = Attention::Latent { dim: 576 };
    assert_eq!(
        Layout::new(Shape { attention, order: Order::LayerPartBlock, ..SMALL }),
        Err(LayoutError::OnePart)
    );
    let layout = Layout::new(Shape { attention, ..SMALL }).unwrap();
    assert_eq!(layout.layer_block_bytes(), 576 * 2 * 4);
}
