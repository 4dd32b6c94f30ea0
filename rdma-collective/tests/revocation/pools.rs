//! The pools of both ends: a group whose blocks are written in place, and one whose heads are packed on their way.

use crate::common::named_device;
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::layout::{
    Attention, CacheType, Group, HeadOrder, Layout, Order, Shape, TensorParallel,
};
use rdma_collective::kv::{Pool, PoolUse};

/// Layers of a group; the second group has those that follow.
pub const LAYERS: u32 = 2;
/// Blocks of the group that is written in place, and of the one that is packed.
const BLOCKS: [u32; 2] = [192, 48];
/// Blocks of a request, of either group: 2.2 MiB.
pub const REQUEST: [usize; 2] = [56, 14];
/// Each byte of prefill; those of decode are lower.
pub const OLD: u8 = 0xc3;

/// 16 KiB a layer; a head of a token has 128 bytes, so it is packed where tokens or heads lie apart.
fn shape(blocks: u32, head_order: HeadOrder) -> Shape {
    Shape {
        layers: LAYERS,
        blocks,
        block_tokens: 16,
        attention: Attention::Grouped { kv_heads: 4, head_dim: 64 },
        cache_type: CacheType::Bf16,
        order: Order::LayerPartBlock,
        head_order,
        tensor_parallel: TensorParallel::WHOLE,
    }
}

fn layout(packed: HeadOrder) -> Layout {
    let place = Group::new(shape(BLOCKS[0], HeadOrder::Nhd)).of_layers(0..LAYERS);
    let packed = Group::new(shape(BLOCKS[1], packed)).of_layers(LAYERS..2 * LAYERS);
    Layout::of([place, packed]).unwrap()
}

/// Prefill's pool, full of old bytes.
pub fn source(engine: &Engine) -> Pool {
    let pool = Pool::allocate(engine, &layout(HeadOrder::Nhd), PoolUse::Source).unwrap();
    fill(&pool, 0..pool.layout().blocks(), OLD);
    pool
}

/// Decode's pool.
pub fn destination(engine: &Engine) -> Pool {
    Pool::allocate(engine, &layout(HeadOrder::Hnd), PoolUse::Destination).unwrap()
}

/// The numbers of the blocks of each group.
pub fn groups() -> [Vec<u32>; 2] {
    [(0..BLOCKS[0]).collect(), (BLOCKS[0]..BLOCKS[0] + BLOCKS[1]).collect()]
}

/// Layers and bytes of each part of a block.
fn parts(pool: &Pool, block: u32) -> (std::ops::Range<u32>, usize) {
    let first = if block < BLOCKS[0] { 0 } else { LAYERS };
    let bytes: u64 = pool.layout().extents(first, block).unwrap().map(|extent| extent.len).sum();
    (first..first + LAYERS, bytes as usize)
}

/// Fills free blocks with a byte.
pub fn fill(pool: &Pool, blocks: impl IntoIterator<Item = u32>, byte: u8) {
    for block in blocks {
        let (layers, bytes) = parts(pool, block);
        let bytes = vec![byte; bytes];
        layers.for_each(|layer| pool.write(layer, block, 0, &bytes).unwrap());
    }
}

/// Fails unless blocks are full of a byte.
pub fn check(pool: &Pool, blocks: &[u32], byte: u8) -> Result<(), String> {
    for &block in blocks {
        let (layers, bytes) = parts(pool, block);
        let (expected, mut found) = (vec![byte; bytes], vec![0; bytes]);
        for layer in layers {
            pool.read(layer, block, 0, &mut found).unwrap();
            if found != expected {
                let wrong = found.iter().filter(|found| **found != byte).count();
                return Err(format!("{wrong} bytes of block {block}, layer {layer} are not {byte:#x}"));
            }
        }
    }
    Ok(())
}

pub fn engine(device_name: &str) -> Engine {
    Engine::new(&named_device(device_name), EngineOptions::default()).unwrap()
}
