//! Models whose cache sizes are known, for programs and tests.

use std::str::FromStr;

use super::{Attention, CacheType, HeadOrder, Order, Shape, TensorParallel};
use crate::ParseNameError;

/// The cache of a known model, per token, from the configuration that is published with its weights.
///
/// ```
/// use rdma_collective::kv::layout::Model;
///
/// let model: Model = "llama-3.1-8b".parse()?;
/// assert_eq!(model.token_bytes(), 131072);
/// # Ok::<(), rdma_collective::ParseNameError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Name under which the model is published.
    pub name: &'static str,
    /// `num_hidden_layers`.
    pub layers: u32,
    /// `num_key_value_heads` and `head_dim`, or `kv_lora_rank + qk_rope_head_dim`.
    pub attention: Attention,
    /// `torch_dtype`.
    pub cache_type: CacheType,
}

impl Model {
    /// Llama 3.1 with 8 billion parameters.
    pub const LLAMA_3_1_8B: Self = Self::grouped("Llama-3.1-8B", 32);
    /// Llama 3.1 with 70 billion parameters.
    pub const LLAMA_3_1_70B: Self = Self::grouped("Llama-3.1-70B", 80);
    /// DeepSeek R1 distilled into Qwen 2.5 with 32 billion parameters.
    pub const DEEPSEEK_R1_DISTILL_QWEN_32B: Self = Self::grouped("DeepSeek-R1-Distill-Qwen-32B", 64);
    /// DeepSeek V3, with a latent of 512 elements and a rotary key of 64.
    pub const DEEPSEEK_V3: Self = Self {
        name: "DeepSeek-V3",
        layers: 61,
        attention: Attention::Latent { dim: 512 + 64 },
        cache_type: CacheType::Bf16,
    };

    /// Every model, in the order in which help texts list them.
    pub const ALL: &[Self] =
        &[Self::LLAMA_3_1_8B, Self::LLAMA_3_1_70B, Self::DEEPSEEK_R1_DISTILL_QWEN_32B, Self::DEEPSEEK_V3];

    /// A model with 8 key-value heads of 128 elements, as all three above have.
    const fn grouped(name: &'static str, layers: u32) -> Self {
        let attention = Attention::Grouped { kv_heads: 8, head_dim: 128 };
        Self { name, layers, attention, cache_type: CacheType::Bf16 }
    }

    /// The shape of a pool of `blocks` blocks of `block_tokens` tokens of the whole model, tokens before heads (NHD).
    #[must_use]
    pub const fn shape(&self, block_tokens: u32, blocks: u32, order: Order) -> Shape {
        let Self { layers, attention, cache_type, .. } = *self;
        let (head_order, tensor_parallel) = (HeadOrder::Nhd, TensorParallel::WHOLE);
        Shape { layers, blocks, block_tokens, attention, cache_type, order, head_order, tensor_parallel }
    }

    /// Bytes of one token over all layers.
    #[must_use]
    pub const fn token_bytes(&self) -> u64 {
        let parts = self.attention.parts() as u64;
        self.layers as u64
            * parts
            * self.attention.heads() as u64
            * self.attention.elements() as u64
            * self.cache_type.size() as u64
    }
}

impl FromStr for Model {
    type Err = ParseNameError;

    /// Parses a model name; case does not matter.
    fn from_str(name: &str) -> Result<Self, ParseNameError> {
        Self::ALL.iter().copied().find(|model| model.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
            ParseNameError {
                what: "model",
                name: name.to_owned(),
                known: Self::ALL.iter().map(|model| model.name).collect::<Vec<_>>().join(", "),
            }
        })
    }
}

#[cfg(test)]
mod tests;
