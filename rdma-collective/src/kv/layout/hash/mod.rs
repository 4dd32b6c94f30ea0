//! The encoding of a shape that peers exchange, its hash, and the comparison of two shapes.

use std::fmt;

use super::{Attention, CacheType, HeadOrder, Order, Shape, TensorParallel};
use crate::kv::layout::LayoutError;

/// The version of the encoding below; part of the hash, so that other versions never agree by chance.
const VERSION: u16 = 2;

/// A 64-bit hash of all that two pools which exchange blocks must agree on; see [`Shape`].
///
/// The hash finds mistakes; it does not protect against a peer that wants to deceive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LayoutHash(pub(crate) u64);

impl fmt::Display for LayoutHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Shape {
    /// Bytes of an encoded shape.
    pub(crate) const ENCODED_BYTES: usize = 36;

    /// Encodes the shape for the wire; `docs/wire.md` has the table.
    #[must_use]
    pub(crate) fn encode(&self) -> [u8; Self::ENCODED_BYTES] {
        let (attention, first, second) = match self.attention {
            Attention::Grouped { kv_heads, head_dim } => (0, kv_heads, head_dim),
            Attention::Latent { dim } => (1, 1, dim),
        };
        let order = match self.order {
            Order::LayerBlockPart => 0,
            Order::LayerPartBlock => 1,
            Order::BlockLayerPart => 2,
        };
        let head_order = match self.head_order {
            HeadOrder::Nhd => 0,
            HeadOrder::Hnd => 1,
        };
        let [v0, v1] = VERSION.to_le_bytes();
        let mut bytes = [0; Self::ENCODED_BYTES];
        bytes[..6].copy_from_slice(&[v0, v1, order, attention, self.cache_type.code(), head_order]);
        let TensorParallel { rank, size } = self.tensor_parallel;
        let words = [self.layers, self.block_tokens, first, second, rank, size, self.blocks];
        for (bytes, word) in bytes[8..].as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    /// Decodes a shape of a peer. The result may not be possible: [`Layout::new`](super::Layout::new) checks it.
    ///
    /// # Errors
    /// [`LayoutError::OtherVersion`] names both versions; [`LayoutError::Malformed`] the field that is wrong.
    pub(crate) fn decode(bytes: &[u8; Self::ENCODED_BYTES]) -> Result<Self, LayoutError> {
        let [v0, v1, order, attention, cache_type, head_order, reserved @ ..] = *bytes;
        let version = u16::from_le_bytes([v0, v1]);
        if version != VERSION {
            return Err(LayoutError::OtherVersion { ours: VERSION, theirs: version });
        }
        let malformed = |field| Err(LayoutError::Malformed { field });
        if reserved[..2] != [0; 2] {
            return malformed("reserved");
        }
        let [layers, block_tokens, first, second, rank, size, blocks] = std::array::from_fn(|word| {
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
        let head_order = match head_order {
            0 => HeadOrder::Nhd,
            1 => HeadOrder::Hnd,
            _ => return malformed("head order"),
        };
        let Some(&cache_type) = CacheType::ALL.get(usize::from(cache_type)) else {
            return malformed("cache type");
        };
        let tensor_parallel = TensorParallel { rank, size };
        Ok(Self { layers, blocks, block_tokens, attention, cache_type, order, head_order, tensor_parallel })
    }

    /// Hashes all fields that peers must agree on.
    #[must_use]
    pub(crate) fn layout_hash(&self) -> LayoutHash {
        // FNV-1a. The encoding ends with the number of blocks, which is not hashed.
        let encoded = self.agreed().encode();
        let agreed = &encoded[..Self::ENCODED_BYTES - 4];
        LayoutHash(agreed.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        }))
    }

    /// Fails unless blocks of a pool of the other shape can be copied into one of this shape byte for byte.
    ///
    /// # Errors
    /// [`LayoutError::Differs`] names the first field that differs, and both values.
    pub(crate) fn check_same(&self, theirs: &Self) -> Result<(), LayoutError> {
        let differs = |field, ours: &dyn fmt::Display, theirs: &dyn fmt::Display| {
            let (ours, theirs) = (ours.to_string(), theirs.to_string());
            if ours == theirs { Ok(()) } else { Err(LayoutError::Differs { field, ours, theirs }) }
        };
        let (ours, theirs) = (self.agreed(), theirs.agreed());
        differs("layers", &ours.layers, &theirs.layers)?;
        differs("tokens a block", &ours.block_tokens, &theirs.block_tokens)?;
        differs("tensor-parallel rank", &ours.tensor_parallel, &theirs.tensor_parallel)?;
        differs("what is kept of a token", &ours.attention, &theirs.attention)?;
        differs("cache type", &ours.cache_type, &theirs.cache_type)?;
        differs("order", &ours.order, &theirs.order)?;
        differs("head order", &ours.head_order, &theirs.head_order)
    }
}

#[cfg(test)]
mod tests;
