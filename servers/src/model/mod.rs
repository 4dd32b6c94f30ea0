//! A Llama of a few layers, whose tokens have the same bits alone, in any batch and in any chunk of their prompt. So
//! the answer of a prefill and a decode can be compared with that of one process bit for bit.
//!
//! `linear` has the matrices, over candle; `row` what happens to one token; `sample` the choice of the next one.

mod config;
mod linear;
mod row;
mod sample;
mod token;
mod weights;

use anyhow::{Result, ensure};

pub use config::{BLOCK_TOKENS, Config};
pub use sample::Sampling;
pub use token::{BEGIN, END, Text, Token, VOCABULARY, byte, encode};

use linear::Linear;
use weights::{Layer, Weights};

/// A model and its weights.
#[derive(Debug)]
pub struct Llama {
    config: Config,
    weights: Weights,
}

/// The keys and values of a text, by layer and position.
pub trait Cache {
    /// Writes those of adjacent tokens, from a position on.
    ///
    /// # Errors
    ///
    /// The cache has no room there, or may not be written.
    fn write(&mut self, layer: usize, first: usize, keys: &[f32], values: &[f32]) -> Result<()>;

    /// Reads those of the first tokens.
    ///
    /// # Errors
    ///
    /// The cache does not have as many.
    fn read(&self, layer: usize, tokens: usize) -> Result<[Vec<f32>; 2]>;
}

/// Adjacent tokens of a text, whose tokens before are in the cache.
pub struct Chunk<'a> {
    /// The tokens.
    pub tokens: &'a [Token],
    /// The position of the first.
    pub first: usize,
    /// The cache of the text.
    pub cache: &'a mut dyn Cache,
}

impl Llama {
    /// A model whose weights follow from the seed.
    ///
    /// # Errors
    ///
    /// No model can have this shape.
    pub fn new(config: Config) -> Result<Self> {
        config.check()?;
        Ok(Self { config, weights: Weights::random(&config)? })
    }

    /// The shape of the model.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Computes chunks of several texts together. Returns the logits behind the last token of each.
    ///
    /// `written` hears of each layer once its keys and values are in the caches, while the rest of the layer is still
    /// to be computed.
    ///
    /// # Errors
    ///
    /// The errors of the caches and of `written`, and a token or a position that the model does not have.
    pub fn step(
        &self,
        chunks: &mut [Chunk<'_>],
        mut written: impl FnMut(usize) -> Result<()>,
    ) -> Result<Vec<Vec<f32>>> {
        let config = &self.config;
        let mut rows = Vec::new();
        for chunk in &*chunks {
            let end = chunk.first + chunk.tokens.len();
            ensure!(!chunk.tokens.is_empty(), "a chunk without a token");
            ensure!(end <= config.max_position_embeddings, "the model has no position {end}");
            for token in chunk.tokens {
                rows.extend(self.weights.embedding(*token)?);
            }
        }
        for (number, layer) in self.weights.layers.iter().enumerate() {
            let attended = self.attention(layer, number, &rows, chunks, &mut written)?;
            add(&mut rows, &layer.output.apply(&attended)?);
            let normed = self.normed(&rows, &layer.feed_forward_norm);
            let gated = row::gate(&layer.gate.apply(&normed)?, &layer.up.apply(&normed)?);
            add(&mut rows, &layer.down.apply(&gated)?);
        }
        self.logits(&rows, chunks)
    }

    /// The attention of each token, before it is projected.
    fn attention(
        &self,
        layer: &Layer,
        number: usize,
        rows: &[f32],
        chunks: &mut [Chunk<'_>],
        written: &mut impl FnMut(usize) -> Result<()>,
    ) -> Result<Vec<f32>> {
        let Config { hidden_size, rope_theta, .. } = self.config;
        let (head_dim, kv_size) = (self.config.head_dim(), self.config.kv_size());
        let normed = self.normed(rows, &layer.attention_norm);
        let mut queries = layer.query.apply(&normed)?;
        let (mut keys, values) = (layer.key.apply(&normed)?, layer.value.apply(&normed)?);
        let positions: Vec<usize> =
            chunks.iter().flat_map(|chunk| chunk.first..chunk.first + chunk.tokens.len()).collect();
        for (position, (query, key)) in
            positions.iter().zip(queries.chunks_exact_mut(hidden_size).zip(keys.chunks_exact_mut(kv_size)))
        {
            row::rotate(query, head_dim, *position, rope_theta);
            row::rotate(key, head_dim, *position, rope_theta);
        }
        let (mut keys, mut values) = (&keys[..], &values[..]);
        for chunk in &mut *chunks {
            let own = chunk.tokens.len() * kv_size;
            let (of_chunk, rest) = (keys.split_at(own), values.split_at(own));
            chunk.cache.write(number, chunk.first, of_chunk.0, rest.0)?;
            (keys, values) = (of_chunk.1, rest.1);
        }
        written(number)?;
        let mut attended = Vec::with_capacity(queries.len());
        let mut queries = queries.chunks_exact(hidden_size);
        for chunk in &*chunks {
            let end = chunk.first + chunk.tokens.len();
            let [keys, values] = chunk.cache.read(number, end)?;
            for (position, query) in (chunk.first..end).zip(queries.by_ref()) {
                let before = ..(position + 1) * kv_size;
                let (keys, values) = (keys.get(before), values.get(before));
                let (keys, values) = (keys.unwrap_or_default(), values.unwrap_or_default());
                attended.extend(row::attend(&self.config, query, keys, values));
            }
        }
        Ok(attended)
    }

    /// The logits behind the last token of each chunk.
    fn logits(&self, rows: &[f32], chunks: &[Chunk<'_>]) -> Result<Vec<Vec<f32>>> {
        let (mut last, mut at) = (Vec::new(), 0);
        for chunk in chunks {
            at += chunk.tokens.len();
            let hidden = self.config.hidden_size;
            last.extend_from_slice(rows.get((at - 1) * hidden..at * hidden).unwrap_or_default());
        }
        let logits = self.weights.head.apply(&self.normed(&last, &self.weights.norm))?;
        Ok(logits.chunks_exact(self.config.vocabulary()).map(<[f32]>::to_vec).collect())
    }

    fn normed(&self, rows: &[f32], scale: &[f32]) -> Vec<f32> {
        let rows = rows.chunks_exact(self.config.hidden_size);
        rows.flat_map(|row| row::norm(row, scale, self.config.rms_norm_eps)).collect()
    }
}

fn add(rows: &mut [f32], more: &[f32]) {
    rows.iter_mut().zip(more).for_each(|(element, more)| *element += more);
}

#[cfg(test)]
mod tests;
