//! The keys and values of a text, in blocks of a pool that lie anywhere.

use anyhow::{Context, Result, ensure};
use rdma_collective::engine::Engine;
use rdma_collective::kv::layout::Layout;
use rdma_collective::kv::{Pool, PoolUse};
use rdma_core::{Memory as Bytes, Region};

use crate::model::{BLOCK_TOKENS, Cache, Config};

/// The memory of a cache, as the model and the transfers have it.
///
/// The model writes the region itself: the pool refuses to write blocks that a push has leased, which are those whose
/// layers are just being computed.
#[derive(Clone)]
pub struct Memory {
    region: Region,
    pool: Pool,
    kv_size: usize,
}

/// The cache of one text.
pub struct Paged<'a> {
    memory: &'a Memory,
    blocks: &'a [u32],
}

impl Memory {
    /// Registers memory for so many blocks of the model.
    ///
    /// # Errors
    ///
    /// There is no memory, or the device does not take it.
    pub fn new(engine: &Engine, config: &Config, blocks: u32, purpose: PoolUse) -> Result<Self> {
        let layout = Layout::new(config.pool(blocks))?;
        let bytes = usize::try_from(layout.bytes()).context("a pool beyond the address space")?;
        let region =
            engine.register(Bytes::allocate(bytes)?, purpose.access()).map_err(|refused| refused.error)?;
        let pool = Pool::in_region(engine, &region, 0, &layout, purpose)?;
        Ok(Self { region, pool, kv_size: config.kv_size() })
    }

    /// The pool, for transfers.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The cache of a text that has these blocks.
    #[must_use]
    pub fn of<'a>(&'a self, blocks: &'a [u32]) -> Paged<'a> {
        Paged { memory: self, blocks }
    }
}

impl Paged<'_> {
    /// The place of a token in a layer: offset of its keys, and of its values.
    fn place(&self, layer: usize, position: usize) -> Result<[usize; 2]> {
        let block =
            self.blocks.get(position / BLOCK_TOKENS).context("a position beyond the blocks of the text")?;
        let extent = self.memory.pool.layout().extents(layer as u32, *block)?.next();
        // Keys of all tokens of a block come before their values.
        let start = extent.context("a block without bytes")?.offset as usize;
        let (row, all) = (self.row_bytes(), BLOCK_TOKENS * self.row_bytes());
        let at = start + position % BLOCK_TOKENS * row;
        Ok([at, at + all])
    }

    /// Bytes of the keys of a token in a layer.
    fn row_bytes(&self) -> usize {
        self.memory.kv_size * size_of::<f32>()
    }

    /// Adjacent tokens, cut at the ends of blocks: the first of each piece, and their number.
    fn pieces(first: usize, tokens: usize) -> impl Iterator<Item = (usize, usize)> {
        let end = first + tokens;
        let starts = std::iter::successors(Some(first), |at| Some((at / BLOCK_TOKENS + 1) * BLOCK_TOKENS));
        starts.take_while(move |at| *at < end).map(move |at| {
            let next = (at / BLOCK_TOKENS + 1) * BLOCK_TOKENS;
            (at, next.min(end) - at)
        })
    }
}

impl Cache for Paged<'_> {
    fn write(&mut self, layer: usize, first: usize, keys: &[f32], values: &[f32]) -> Result<()> {
        let kv_size = self.memory.kv_size;
        ensure!(keys.len() == values.len(), "keys and values of different numbers of tokens");
        for (at, tokens) in Self::pieces(first, keys.len() / kv_size) {
            let places = self.place(layer, at)?;
            let range = (at - first) * kv_size..(at - first + tokens) * kv_size;
            for (place, part) in places.into_iter().zip([keys, values]) {
                let rows = part.get(range.clone()).unwrap_or_default();
                self.memory.region.copy_in(place, bytemuck::cast_slice(rows))?;
            }
        }
        Ok(())
    }

    fn read(&self, layer: usize, tokens: usize) -> Result<[Vec<f32>; 2]> {
        let kv_size = self.memory.kv_size;
        let mut parts = [vec![0.0; tokens * kv_size], vec![0.0; tokens * kv_size]];
        for (at, tokens) in Self::pieces(0, tokens) {
            let places = self.place(layer, at)?;
            for (place, part) in places.into_iter().zip(&mut parts) {
                let rows = part.get_mut(at * kv_size..(at + tokens) * kv_size).unwrap_or_default();
                self.memory.region.copy_out(place, bytemuck::cast_slice_mut(rows))?;
            }
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use rdma_collective::engine::EngineOptions;
    use rdma_core::{Device, SoftOptions};

    use super::*;

    #[test]
    fn rows_come_back_from_scattered_blocks_as_they_were_written() {
        let config = Config { num_hidden_layers: 2, ..Config::default() };
        let device = Device::soft(SoftOptions::default()).open().unwrap();
        let engine = Engine::new(&device, EngineOptions::default()).unwrap();
        let memory = Memory::new(&engine, &config, 8, PoolUse::Source).unwrap();
        let kv_size = config.kv_size();
        let row =
            |layer: usize, at: usize, part: usize| vec![(layer * 1000 + at * 10 + part) as f32; kv_size];
        let rows = |layer, range: std::ops::Range<usize>, part| -> Vec<f32> {
            range.flat_map(|at| row(layer, at, part)).collect()
        };
        let mut cache = memory.of(&[5, 0, 7]);
        for (layer, range) in [(0, 0..3), (0, 3..40), (1, 0..48), (0, 40..48)] {
            let [keys, values] = [0, 1].map(|part| rows(layer, range.clone(), part));
            cache.write(layer, range.start, &keys, &values).unwrap();
        }
        for layer in 0..2 {
            for tokens in [1, 16, 17, 48] {
                assert_eq!(
                    cache.read(layer, tokens).unwrap(),
                    [0, 1].map(|part| rows(layer, 0..tokens, part))
                );
            }
        }
        assert!(cache.read(0, 49).is_err() && cache.write(0, 48, &row(0, 0, 0), &row(0, 0, 0)).is_err());
    }
}
