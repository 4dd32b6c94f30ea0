//! The shape as peers exchange it, its hash, and which field differs.

use std::fmt;

use super::{Attention, CacheType, Order, Shape};
use crate::error::LayoutError;

/// The version of the encoding below; part of the hash, so that other versions never agree by chance.
const VERSION: u16 = 1;

/// What two pools that exchange blocks agree on, in 64 bits: everything of the shape but the number of blocks.
///
/// It tells mistakes apart and is no protection against a peer that wants to deceive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayoutHash(pub u64);

impl fmt::Display for LayoutHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Shape {
    /// Bytes of an encoded shape.
    pub const ENCODED_BYTES: usize = 28;

    /// The shape as it goes over the wire; `docs/wire.md` has the table.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::ENCODED_BYTES] {
        let (attention, first, second) = match self.attention {
            Attention::Grouped { kv_heads, head_dim } => (0, kv_heads, head_dim),
            Attention::Latent { dim } => (1, 1, dim),
        };
        let order = match self.order {
            Order::LayerBlockPart => 0,
            Order::LayerPartBlock => 1,
            Order::BlockLayerPart => 2,
        };
        let cache_type = match self.cache_type {
            CacheType::Bf16 => 0,
            CacheType::F16 => 1,
        };
        let [v0, v1] = VERSION.to_le_bytes();
        let mut bytes = [0; Self::ENCODED_BYTES];
        bytes[..5].copy_from_slice(&[v0, v1, order, attention, cache_type]);
        let words = [self.layers, self.block_tokens, first, second, self.blocks];
        for (bytes, word) in bytes[8..].as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    /// Reads what a peer encoded. The shape is not laid out: [`Layout::new`](super::Layout::new) checks it.
    ///
    /// # Errors
    /// [`LayoutError::OtherVersion`] names both versions; [`LayoutError::Malformed`] the field that is wrong.
    pub fn decode(bytes: &[u8; Self::ENCODED_BYTES]) -> Result<Self, LayoutError> {
        let [v0, v1, order, attention, cache_type, reserved @ ..] = *bytes;
        let version = u16::from_le_bytes([v0, v1]);
        if version != VERSION {
            return Err(LayoutError::OtherVersion { ours: VERSION, theirs: version });
        }
        let malformed = |field| Err(LayoutError::Malformed { field });
        if reserved[..3] != [0; 3] {
            return malformed("reserved");
        }
        let [layers, block_tokens, first, second, blocks] = std::array::from_fn(|word| {
            u32::from_le_bytes(std::array::from_fn(|byte| bytes[8 + 4 * word + byte]))
        });
        let attention = match (attention, first, second) {
            (0, kv_heads, head_dim) => Attention::Grouped { kv_heads, head_dim },
            (1, 1, dim) => Attention::Latent { dim },
            _ => return malformed("attention"),
        };
        let order = match order {
            0 => Order::LayerBlockPart,
            1 => Order::LayerPartBlock,
            2 => Order::BlockLayerPart,
            _ => return malformed("order"),
        };
        let cache_type = match cache_type {
            0 => CacheType::Bf16,
            1 => CacheType::F16,
            _ => return malformed("cache type"),
        };
        Ok(Self { layers, blocks, block_tokens, attention, cache_type, order })
    }

    /// The hash of all that peers agree on.
    #[must_use]
    pub fn layout_hash(&self) -> LayoutHash {
        // The encoding ends with the number of blocks, the one field that may differ. FNV-1a.
        let agreed = &self.encode()[..Self::ENCODED_BYTES - 4];
        LayoutHash(agreed.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        }))
    }

    /// That blocks of a pool of the other shape can be copied into one of this shape as they are.
    ///
    /// # Errors
    /// [`LayoutError::Differs`] names the first field that differs, and both values.
    pub fn check_same(&self, theirs: &Self) -> Result<(), LayoutError> {
        let differs = |field, ours: &dyn fmt::Display, theirs: &dyn fmt::Display| {
            let (ours, theirs) = (ours.to_string(), theirs.to_string());
            if ours == theirs { Ok(()) } else { Err(LayoutError::Differs { field, ours, theirs }) }
        };
        differs("layers", &self.layers, &theirs.layers)?;
        differs("tokens a block", &self.block_tokens, &theirs.block_tokens)?;
        differs("what is kept of a token", &self.attention, &theirs.attention)?;
        differs("cache type", &self.cache_type, &theirs.cache_type)?;
        differs("order", &self.order, &theirs.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::layout::Model;
    use crate::kv::layout::order::tests::shapes;
    use proptest::prelude::*;

    const SHAPE: Shape = Model::LLAMA_3_1_8B.shape(16, 1000, Order::LayerPartBlock);

    /// Each differs from `SHAPE` in one field that peers must agree on.
    fn others() -> [(&'static str, Shape); 6] {
        let grouped = |kv_heads, head_dim| Attention::Grouped { kv_heads, head_dim };
        [
            ("layers", Shape { layers: 33, ..SHAPE }),
            ("tokens a block", Shape { block_tokens: 32, ..SHAPE }),
            ("what is kept of a token", Shape { attention: grouped(4, 256), ..SHAPE }),
            ("what is kept of a token", Shape { attention: Attention::Latent { dim: 576 }, ..SHAPE }),
            ("cache type", Shape { cache_type: CacheType::F16, ..SHAPE }),
            ("order", Shape { order: Order::LayerBlockPart, ..SHAPE }),
        ]
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
                let head = [1, 0, bytes[2] % 4, bytes[3] % 3, bytes[4] % 3, 0, 0, 0];
                bytes[..8].copy_from_slice(&head);
            }
            if let Ok(shape) = Shape::decode(&bytes) {
                prop_assert_eq!(shape.encode(), bytes);
            }
        }
    }

    /// Changing the encoding without its version breaks peers of the version before.
    #[test]
    fn encoding_and_hash_of_version_1() {
        let hex: String = SHAPE.encode().iter().map(|byte| format!("{byte:02x}")).collect();
        insta::assert_snapshot!(format!("{hex} {}", SHAPE.layout_hash()), @"010001000000000020000000100000000800000080000000e8030000 74c38cd6a8626fc5");
    }

    #[test]
    fn pools_may_differ_in_blocks_and_in_nothing_else() {
        let larger = Shape { blocks: 1001, ..SHAPE };
        assert_eq!((SHAPE.check_same(&larger), SHAPE.layout_hash()), (Ok(()), larger.layout_hash()));
        for (name, other) in others() {
            assert_ne!(SHAPE.layout_hash(), other.layout_hash(), "{name}");
            let Err(LayoutError::Differs { field, .. }) = SHAPE.check_same(&other) else {
                panic!("{name} may not differ")
            };
            assert_eq!(field, name);
        }
    }

    #[test]
    fn another_version_and_each_unknown_value_is_refused() {
        let decode = |at: usize, value| {
            let mut bytes = SHAPE.encode();
            bytes[at] = value;
            Shape::decode(&bytes)
        };
        assert_eq!(decode(0, 2), Err(LayoutError::OtherVersion { ours: 1, theirs: 2 }));
        for (at, field) in
            [(2, "order"), (3, "attention"), (4, "cache type"), (5, "reserved"), (7, "reserved")]
        {
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
        ");
    }
}
