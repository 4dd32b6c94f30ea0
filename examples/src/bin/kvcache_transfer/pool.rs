//! Fills a pool and looks at every byte of it; what a byte must be is `content`'s to say.

use crate::blocks::Blocks;
use crate::content::{Owner, Verified};
use crate::presets::Request;
use anyhow::Context;
use rdma_collective::engine::Engine;
use rdma_collective::kv::layout::Layout;
use rdma_collective::kv::{Pool, PoolUse};
use rdma_core::Memory;

/// A pool's blocks by who owns their bytes.
#[derive(Debug)]
pub struct Owners {
    /// For each block of the pool, its place in the request.
    places: Vec<Option<u32>>,
}

impl Owners {
    /// The request's blocks lie at `ids`, in order; all others are the pool's own.
    ///
    /// # Errors
    ///
    /// When an id is beyond the pool.
    pub fn new(request: &Request, ids: &[u32]) -> anyhow::Result<Self> {
        let mut places = vec![None; request.pool_blocks() as usize];
        for (place, &id) in (0..).zip(ids) {
            *places.get_mut(id as usize).with_context(|| format!("block {id} is beyond the pool"))? =
                Some(place);
        }
        Ok(Self { places })
    }

    /// A pool that holds nothing of a request.
    pub fn none(request: &Request) -> Self {
        Self { places: vec![None; request.pool_blocks() as usize] }
    }

    fn blocks(&self) -> impl Iterator<Item = (u32, Option<u32>)> + '_ {
        (0..).zip(self.places.iter().copied())
    }
}

/// Allocates a pool, each of its tensors by itself.
///
/// # Errors
///
/// A limit of the system or of the device.
pub fn allocate(engine: &Engine, layout: &Layout, purpose: PoolUse) -> anyhow::Result<Pool> {
    let memory = |len: u64| anyhow::Ok(Memory::allocate(usize::try_from(len)?)?);
    let tensors = layout.tensors().map(|tensor| memory(tensor.len)).collect::<anyhow::Result<_>>()?;
    Ok(Pool::register_tensors(engine, tensors, layout, purpose).map_err(|refused| refused.error)?)
}

/// Writes every byte of a pool.
///
/// # Errors
///
/// When a block is held by a transfer.
pub fn fill(pool: &Pool, owners: &Owners, blocks: &Blocks) -> anyhow::Result<()> {
    let mut bytes = vec![0; usize::try_from(pool.layout().layer_block_bytes())?];
    for layer in 0..pool.layout().shape().layers {
        for (block, place) in owners.blocks() {
            blocks.fill(owner(layer, block, place), &mut bytes);
            pool.write(layer, block, 0, &bytes)?;
        }
    }
    Ok(())
}

/// Looks at every byte of a pool; `progress` is told how many layers were looked at.
///
/// # Errors
///
/// When the owners are those of another pool.
pub fn verify(
    pool: &Pool,
    owners: &Owners,
    blocks: &Blocks,
    mut progress: impl FnMut(u32),
) -> anyhow::Result<Verified> {
    let mut verified = Verified::default();
    let mut bytes = vec![0; usize::try_from(pool.layout().layer_block_bytes())?];
    for layer in 0..pool.layout().shape().layers {
        for (block, place) in owners.blocks() {
            pool.read(layer, block, 0, &mut bytes)?;
            let wrong = blocks.wrong(owner(layer, block, place), &bytes);
            match place {
                Some(_) => verified.blocks += u64::from(wrong == 0),
                None => verified.other_bytes += wrong,
            }
        }
        progress(layer + 1);
    }
    Ok(verified)
}

fn owner(layer: u32, block: u32, place: Option<u32>) -> Owner {
    match place {
        Some(block) => Owner::Request { layer, block },
        None => Owner::Pool { layer, block },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use crate::content::shuffled;
    use crate::sides::Rank;
    use clap::Parser;
    use rdma_collective::engine::EngineOptions;
    use rdma_collective::kv::layout::Model;
    use rdma_core::{Device, SoftOptions};

    const SMALL: Model = Model { layers: 3, ..Model::DEEPSEEK_V3 };

    fn pool() -> (Request, Pool, Blocks) {
        let args = Args::parse_from("kvcache_transfer --prompt 10 --block 2".split(' '));
        let request = Args { model: SMALL, ..args }.request(Rank::default()).unwrap();
        let context = Device::soft(SoftOptions::default()).open().unwrap();
        let engine = Engine::new(&context, EngineOptions::default()).unwrap();
        let pool = allocate(&engine, &request.layout, PoolUse::Source).unwrap();
        let blocks = Blocks::new(&request, 5).unwrap();
        (request, pool, blocks)
    }

    fn look(pool: &Pool, owners: &Owners, blocks: &Blocks) -> Verified {
        let mut layers = Vec::new();
        let verified = verify(pool, owners, blocks, |layer| layers.push(layer)).unwrap();
        assert_eq!(layers, [1, 2, 3]);
        verified
    }

    #[test]
    fn what_was_filled_is_verified() {
        let (request, pool, blocks) = pool();
        let owners = Owners::new(&request, &shuffled(1, request.pool_blocks(), request.blocks)).unwrap();
        fill(&pool, &owners, &blocks).unwrap();
        assert_eq!(look(&pool, &owners, &blocks), Verified { blocks: 15, other_bytes: 0 });
    }

    #[test]
    fn an_untouched_pool_has_no_block_of_the_request() {
        let (request, pool, blocks) = pool();
        fill(&pool, &Owners::none(&request), &blocks).unwrap();
        let owners = Owners::new(&request, &shuffled(1, request.pool_blocks(), request.blocks)).unwrap();
        assert_eq!(look(&pool, &owners, &blocks), Verified { blocks: 0, other_bytes: 0 });
    }

    #[test]
    fn any_byte_that_changes_anywhere_is_seen() {
        let (request, pool, blocks) = pool();
        let owners = Owners::new(&request, &[9, 0, 4, 3, 7]).unwrap();
        fill(&pool, &owners, &blocks).unwrap();
        let last = request.layout.layer_block_bytes() - 1;
        let (corrupt, beside) =
            (Verified { blocks: 14, other_bytes: 0 }, Verified { blocks: 15, other_bytes: 1 });
        for (layer, block, at, expected) in [
            (0, 0, 0, corrupt),
            (0, 1, 0, beside),
            (0, 9, last, corrupt),
            (2, 9, last, corrupt),
            (2, 8, last, beside),
        ] {
            let mut byte = [0];
            pool.read(layer, block, at, &mut byte).unwrap();
            pool.write(layer, block, at, &[byte[0] ^ 1]).unwrap();
            assert_eq!(look(&pool, &owners, &blocks), expected, "layer {layer} block {block} byte {at}");
            pool.write(layer, block, at, &byte).unwrap();
        }
    }

    #[test]
    fn an_id_beyond_the_pool_is_an_error() {
        let (request, ..) = pool();
        assert!(Owners::new(&request, &[request.pool_blocks()]).is_err());
    }
}
