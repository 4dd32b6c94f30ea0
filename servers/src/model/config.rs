//! The shape of the model, by the names that Hugging Face's `config.json` has.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rdma_collective::kv::layout::{Attention, CacheType, HeadOrder, Order, Shape, TensorParallel};
use serde::{Deserialize, Serialize};

use super::token::VOCABULARY;

/// Tokens of a block of the cache.
pub const BLOCK_TOKENS: usize = 16;

/// The shape of a model, and the seed of its weights. Two servers of one job have the same.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Layers.
    pub num_hidden_layers: usize,
    /// Elements of a token's vector between layers.
    pub hidden_size: usize,
    /// Elements of a token's vector within the feed-forward network of a layer.
    pub intermediate_size: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key-value heads, each of which serves as many query heads.
    pub num_key_value_heads: usize,
    /// Tokens of a prompt and its answer, at most.
    pub max_position_embeddings: usize,
    /// Base of the rotary embedding.
    pub rope_theta: f32,
    /// The number that keeps a norm from dividing by zero.
    pub rms_norm_eps: f32,
    /// The seed of the weights.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            num_hidden_layers: 4,
            hidden_size: 256,
            intermediate_size: 704,
            num_attention_heads: 8,
            num_key_value_heads: 2,
            max_position_embeddings: 2048,
            rope_theta: 10_000.0,
            rms_norm_eps: 1e-5,
            seed: 1,
        }
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl Config {
    /// Reads a file of JSON. A field that is missing has its default.
    ///
    /// # Errors
    ///
    /// The file cannot be read, has a field that no model has, or a shape that no model can have.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read(path).with_context(|| format!("cannot read the model {}", path.display()))?;
        // A list is no model, though its elements could be taken for the fields in their order.
        let config: Self = serde_json::from_slice(&text)
            .and_then(|fields: serde_json::Map<_, _>| Self::deserialize(serde_json::Value::Object(fields)))
            .with_context(|| format!("the model {} is not a config.json of this server", path.display()))?;
        config.check().with_context(|| format!("the model {}", path.display()))?;
        Ok(config)
    }

    /// Fails unless a model can have this shape.
    ///
    /// # Errors
    ///
    /// The error names the fields that do not go together.
    pub fn check(&self) -> Result<()> {
        let Self { hidden_size, num_attention_heads: heads, num_key_value_heads: kv_heads, .. } = *self;
        let counts = [self.num_hidden_layers, hidden_size, self.intermediate_size, heads, kv_heads];
        ensure!(counts.iter().all(|count| (1..=65_536).contains(count)), "counts are 1 to 65,536: {self:?}");
        ensure!(heads % kv_heads == 0, "num_attention_heads is a multiple of num_key_value_heads: {self:?}");
        ensure!(
            hidden_size % heads == 0 && (hidden_size / heads) % 2 == 0,
            "hidden_size is an even multiple of num_attention_heads: {self:?}"
        );
        ensure!(
            (2..=1 << 20).contains(&self.max_position_embeddings),
            "max_position_embeddings is 2 to 1,048,576: {self:?}"
        );
        let numbers = [self.rope_theta, self.rms_norm_eps];
        ensure!(
            numbers.iter().all(|number| number.is_normal() && *number > 0.0),
            "no sound number: {self:?}"
        );
        Ok(())
    }

    /// Elements of a head.
    #[must_use]
    pub fn head_dim(&self) -> usize {
        self.hidden_size / self.num_attention_heads
    }

    /// Elements of a token's keys in a layer, and of its values.
    #[must_use]
    pub fn kv_size(&self) -> usize {
        self.num_key_value_heads * self.head_dim()
    }

    /// Tokens that the model knows.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        VOCABULARY as usize
    }

    /// Blocks that so many tokens take.
    #[must_use]
    pub fn blocks_of(tokens: usize) -> usize {
        tokens.div_ceil(BLOCK_TOKENS)
    }

    /// The shape of a pool of so many blocks: all keys of a block of a layer, and behind them all values.
    #[must_use]
    pub fn pool(&self, blocks: u32) -> Shape {
        Shape {
            // `check` bounds the counts.
            layers: self.num_hidden_layers as u32,
            blocks,
            block_tokens: BLOCK_TOKENS as u32,
            attention: Attention::Grouped {
                kv_heads: self.num_key_value_heads as u32,
                head_dim: self.head_dim() as u32,
            },
            cache_type: CacheType::F32,
            order: Order::LayerBlockPart,
            head_order: HeadOrder::Nhd,
            tensor_parallel: TensorParallel { rank: 0, size: 1 },
        }
    }
}
