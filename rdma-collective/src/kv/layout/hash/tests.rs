//! Round trips and arbitrary bytes, the encoding of version 2, and pools that differ.

use super::*;
use crate::kv::layout::order::tests::shapes;
use crate::kv::layout::{Layout, Model};
use proptest::prelude::*;

const SHAPE: Shape = Model::LLAMA_3_1_8B.shape(16, 1000, Order::LayerPartBlock);

/// Each differs from `SHAPE` in one field that peers must agree on.
fn others() -> Vec<(&'static str, Shape)> {
    let grouped = |kv_heads, head_dim| Attention::Grouped { kv_heads, head_dim };
    let parallel = |rank, size| Shape { tensor_parallel: TensorParallel { rank, size }, ..SHAPE };
    let types = CacheType::ALL.iter().filter(|cache_type| **cache_type != SHAPE.cache_type);
    let types = types.map(|&cache_type| ("cache type", Shape { cache_type, ..SHAPE }));
    let fields = [
        ("layers", Shape { layers: 33, ..SHAPE }),
        ("tokens a block", Shape { block_tokens: 32, ..SHAPE }),
        ("what is kept of a token", Shape { attention: grouped(4, 256), ..SHAPE }),
        ("what is kept of a token", Shape { attention: grouped(4, 128), ..SHAPE }),
        ("what is kept of a token", Shape { attention: grouped(8, 64), ..SHAPE }),
        ("what is kept of a token", Shape { attention: Attention::Latent { dim: 576 }, ..SHAPE }),
        ("tensor-parallel rank", parallel(0, 2)),
        ("tensor-parallel rank", parallel(1, 2)),
        ("order", Shape { order: Order::LayerBlockPart, ..SHAPE }),
        ("order", Shape { order: Order::BlockLayerPart, ..SHAPE }),
        ("head order", Shape { head_order: HeadOrder::Hnd, ..SHAPE }),
    ];
    fields.into_iter().chain(types).collect()
}

proptest! {
    #[test]
    fn decodes_what_was_encoded(shape in shapes()) {
        prop_assert_eq!(Shape::decode(&shape.encode()), Ok(shape));
    }

    #[test]
    fn any_bytes_are_a_shape_that_encodes_to_them_or_an_error(
        mut bytes: [u8; Shape::ENCODED_BYTES],
        plausible: bool,
    ) {
        if plausible {
            let head = [2, 0, bytes[2] % 4, bytes[3] % 3, bytes[4] % 8, bytes[5] % 3, 0, 0];
            bytes[..8].copy_from_slice(&head);
        }
        if let Ok(shape) = Shape::decode(&bytes) {
            prop_assert_eq!(shape.encode(), bytes);
        }
    }
}

/// Changing the encoding without its version breaks peers of the same version.
#[test]
fn encoding_and_hash_of_version_2() {
    let hex: String = SHAPE.encode().iter().map(|byte| format!("{byte:02x}")).collect();
    insta::assert_snapshot!(format!("{hex} {}", SHAPE.layout_hash()), @"0200010000000000200000001000000008000000800000000000000001000000e8030000 e1db3d645ea86d47");
}

#[test]
fn pools_may_differ_in_blocks_and_in_nothing_else() {
    let larger = Shape { blocks: 1001, ..SHAPE };
    assert_eq!((SHAPE.check_same(&larger), SHAPE.layout_hash()), (Ok(()), larger.layout_hash()));
    for (name, other) in others() {
        assert_ne!(SHAPE.layout_hash(), other.layout_hash(), "{name}");
        let Err(LayoutError::Differs { field, ours, theirs }) = SHAPE.check_same(&other) else {
            panic!("{name} may not differ")
        };
        assert_eq!(field, name);
        let back = other.check_same(&SHAPE);
        assert_eq!(back, Err(LayoutError::Differs { field, ours: theirs, theirs: ours }));
    }
}

#[test]
fn ranks_that_all_have_a_latent_vector_go_together() {
    let shape = Model::DEEPSEEK_V3.shape(16, 10, Order::LayerBlockPart);
    let other =
        Shape { head_order: HeadOrder::Hnd, ..shape.of_rank(TensorParallel { rank: 3, size: 8 }).unwrap() };
    assert_eq!((shape.check_same(&other), shape.layout_hash()), (Ok(()), other.layout_hash()));
    assert!(Layout::new(other).is_ok());
    let other = Shape { tensor_parallel: TensorParallel { rank: 8, size: 8 }, ..other };
    assert_eq!(Layout::new(other), Err(LayoutError::NoSuchShard { rank: 8, size: 8 }));
}

#[test]
fn another_version_and_each_unknown_value_is_refused() {
    let decode = |at: usize, value| {
        let mut bytes = SHAPE.encode();
        bytes[at] = value;
        Shape::decode(&bytes)
    };
    assert_eq!(decode(0, 1), Err(LayoutError::OtherVersion { ours: 2, theirs: 1 }));
    for (at, field) in [
        (2, "order"),
        (3, "attention"),
        (4, "cache type"),
        (5, "head order"),
        (6, "reserved"),
        (7, "reserved"),
    ] {
        assert_eq!(decode(at, 9), Err(LayoutError::Malformed { field }));
    }
}

#[test]
fn errors_say_what_to_do() {
    let errors = [
        LayoutError::Zero { dimension: "layers" },
        LayoutError::OnePart,
        LayoutError::TooLarge { shape: SHAPE },
        LayoutError::NoSuchLayer { layer: 9, layers: 8 },
        LayoutError::NoSuchBlock { block: 9, blocks: 8 },
        LayoutError::MemoryTooSmall { need: 4096, len: 100 },
        LayoutError::NoSuchShard { rank: 4, size: 4 },
        LayoutError::UnevenHeads { kv_heads: 8, size: 3 },
        LayoutError::OtherVersion { ours: 1, theirs: 2 },
        LayoutError::Malformed { field: "order" },
        SHAPE.check_same(&others()[2].1).unwrap_err(),
        SHAPE.check_same(&others()[7].1).unwrap_err(),
    ];
    insta::assert_snapshot!(errors.map(|error| error.to_string()).join("\n"), @r"
    a pool with 0 layers holds nothing; give every dimension at least 1
    a latent cache has no keys and values to keep apart; use the order layer, block or block, layer
    a pool of 32 layers, 1000 blocks of 16 tokens and 8 key-value heads of 128 elements has more bytes than a machine can address; use fewer blocks
    layer 9 is not one of 8; layers count from 0
    block 9 is not one of 8; blocks count from 0
    a pool of 4096 bytes does not fit memory of 100 bytes; use fewer blocks or more memory
    tensor-parallel rank 4 is not one of 4; ranks count from 0
    8 key-value heads and 3 tensor-parallel ranks do not divide; choose a size that divides the heads or is a multiple of them
    the peer describes its pool in version 2, this side in version 1; run one release on both
    the peer's description of its pool has an unknown order; run one release on both sides
    pools differ in what is kept of a token: here 8 key-value heads of 128 elements, there 4 key-value heads of 256 elements; configure both sides alike
    pools differ in tensor-parallel rank: here rank 0 of 1, there rank 1 of 2; configure both sides alike
    ");
}
