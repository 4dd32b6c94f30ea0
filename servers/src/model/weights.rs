//! The weights of a model, which follow from its seed.

use anyhow::{Context, Result};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::{Config, Linear, Token};

/// The weights of a model.
#[derive(Debug)]
pub struct Weights {
    /// The vectors of all tokens, one behind the other.
    embedding: Vec<f32>,
    hidden_size: usize,
    pub layers: Vec<Layer>,
    pub norm: Vec<f32>,
    pub head: Linear,
}

/// The weights of a layer.
#[derive(Debug)]
pub struct Layer {
    pub attention_norm: Vec<f32>,
    pub query: Linear,
    pub key: Linear,
    pub value: Linear,
    pub output: Linear,
    pub feed_forward_norm: Vec<f32>,
    pub gate: Linear,
    pub up: Linear,
    pub down: Linear,
}

impl Weights {
    pub fn random(config: &Config) -> Result<Self> {
        let Config { hidden_size, intermediate_size, .. } = *config;
        let mut random = ChaCha8Rng::seed_from_u64(config.seed);
        let mut linear = |inputs: usize, outputs: usize| {
            // Rows keep their length on average.
            let most = (3.0 / inputs as f32).sqrt();
            Linear::new(uniform(&mut random, inputs * outputs, most), inputs, outputs)
        };
        let mut layers = Vec::with_capacity(config.num_hidden_layers);
        for _ in 0..config.num_hidden_layers {
            layers.push(Layer {
                attention_norm: vec![1.0; hidden_size],
                query: linear(hidden_size, hidden_size)?,
                key: linear(hidden_size, config.kv_size())?,
                value: linear(hidden_size, config.kv_size())?,
                output: linear(hidden_size, hidden_size)?,
                feed_forward_norm: vec![1.0; hidden_size],
                gate: linear(hidden_size, intermediate_size)?,
                up: linear(hidden_size, intermediate_size)?,
                down: linear(intermediate_size, hidden_size)?,
            });
        }
        let head = linear(hidden_size, config.vocabulary())?;
        let embedding = uniform(&mut random, config.vocabulary() * hidden_size, 1.0);
        Ok(Self { embedding, hidden_size, layers, norm: vec![1.0; hidden_size], head })
    }

    /// The vector of a token.
    pub fn embedding(&self, token: Token) -> Result<&[f32]> {
        let first = token as usize * self.hidden_size;
        let vector = self.embedding.get(first..first + self.hidden_size);
        vector.with_context(|| format!("the model has no token {token}"))
    }
}

/// Numbers from `-most` to `most`.
fn uniform(random: &mut ChaCha8Rng, count: usize, most: f32) -> Vec<f32> {
    // 24 bits, as many as an f32 has.
    let number = |bits: u32| (bits >> 8) as f32 / (1 << 23) as f32 - 1.0;
    (0..count).map(|_| number(random.next_u32()) * most).collect()
}
