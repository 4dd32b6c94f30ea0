//! Ranks of prefill that have some heads of every block, tokens before heads; decode has all, heads before tokens.

use rdma_collective::engine::Engine;
use rdma_collective::kv::layout::{Attention, CacheType, HeadOrder, Layout, Order, Shape, TensorParallel};
use rdma_collective::kv::{BlockVerdict, Decode, LinkOptions, Pool, PoolUse, Prefill, Verdicts};

use super::pair::{CANARY, link};

const TOKENS: u32 = 16;
const HEADS: u32 = 8;
/// Bytes of a head of a token.
const ELEMENT: u64 = 64;

pub const WHOLE: Shape = Shape {
    layers: 8,
    blocks: 64,
    block_tokens: TOKENS,
    attention: Attention::Grouped { kv_heads: HEADS, head_dim: 32 },
    cache_type: CacheType::Bf16,
    order: Order::LayerPartBlock,
    head_order: HeadOrder::Hnd,
    tensor_parallel: TensorParallel::WHOLE,
};

/// The layout of a rank of prefill.
pub fn layout(rank: u32, size: u32) -> Layout {
    let whole = Shape { head_order: HeadOrder::Nhd, ..WHOLE };
    Layout::new(whole.of_rank(TensorParallel { rank, size }).unwrap()).unwrap()
}

/// The byte of prefill's block: part 0 has keys, part 1 values.
fn byte(layer: u32, block: u32, [part, token, head]: [u32; 3], at: u64) -> u8 {
    let place = [layer, block, part, token, head].iter().fold(at, |place, of| place * 67 + u64::from(*of));
    (place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// A pool of prefill in which every byte is known.
pub fn source(engine: &Engine, rank: u32, size: u32) -> Pool {
    let layout = layout(rank, size);
    let pool = Pool::allocate(engine, &layout, PoolUse::SourceToPull).unwrap();
    let heads = TensorParallel { rank, size }.heads(WHOLE.attention).unwrap();
    for (layer, block) in
        (0..WHOLE.layers).flat_map(|layer| (0..WHOLE.blocks).map(move |block| (layer, block)))
    {
        let mut bytes = Vec::new();
        for (part, token) in (0..2).flat_map(|part| (0..TOKENS).map(move |token| (part, token))) {
            for head in heads.clone() {
                bytes.extend((0..ELEMENT).map(|at| byte(layer, block, [part, token, head], at)));
            }
        }
        pool.write(layer, block, 0, &bytes).unwrap();
    }
    pool
}

/// The pool of decode, in which no byte is one of prefill's yet.
pub fn room(engine: &Engine) -> Pool {
    room_in(engine, HeadOrder::Hnd)
}

/// [`room`], in which heads of a token lie together or tokens of a head.
pub fn room_in(engine: &Engine, head_order: HeadOrder) -> Pool {
    let layout = Layout::new(Shape { head_order, ..WHOLE }).unwrap();
    let pool = Pool::allocate(engine, &layout, PoolUse::Destination).unwrap();
    super::pair::fill(&pool, |_, _, _| CANARY);
    pool
}

/// Links of all ranks of prefill to one pool, all in this process.
pub fn links(engine: &Engine, room: &Pool, size: u32) -> (Vec<Prefill>, Vec<Decode>) {
    let options = LinkOptions { max_send_wr: 32, credits: 80, ..LinkOptions::default() };
    let links = (0..size).map(|rank| {
        let source = source(engine, rank, size);
        link((engine, &source), (engine, room), &options)
    });
    links.unzip()
}

/// Asserts that what one of `size` ranks has brought is what its verdicts say: a valid block has its heads.
pub fn assert_true(room: &Pool, pairs: &[(u32, u32)], (rank, size): (u32, u32), verdicts: &Verdicts) {
    let heads = TensorParallel { rank, size }.heads(WHOLE.attention).unwrap();
    let mut bytes = vec![0; room.layout().layer_block_bytes() as usize];
    for layer in 0..WHOLE.layers {
        for (place, &(from, to)) in pairs.iter().enumerate() {
            if verdicts.get(layer, place) != Some(BlockVerdict::Valid) {
                continue;
            }
            room.read(layer, to, 0, &mut bytes).unwrap();
            for (part, head) in (0..2).flat_map(|part| heads.clone().map(move |head| (part, head))) {
                for token in 0..TOKENS {
                    let place = match room.layout().shape().head_order {
                        HeadOrder::Hnd => (part * HEADS + head) * TOKENS + token,
                        HeadOrder::Nhd => (part * TOKENS + token) * HEADS + head,
                    };
                    let start = u64::from(place) * ELEMENT;
                    for at in 0..ELEMENT {
                        let expected = byte(layer, from, [part, token, head], at);
                        let place = (layer, to, part, head, token, at);
                        assert_eq!(bytes[(start + at) as usize], expected, "{place:?} of rank {rank}");
                    }
                }
            }
        }
    }
}

/// Asserts that the blocks of decode are those of prefill, and that no other byte has changed.
pub fn assert_moved(room: &Pool, pairs: &[(u32, u32)], all: &Verdicts) {
    assert!(all.all_valid(), "{all:?}");
    assert_true(room, pairs, (0, 1), all);
    let mut bytes = vec![0; room.layout().layer_block_bytes() as usize];
    for layer in 0..WHOLE.layers {
        for block in (0..WHOLE.blocks).filter(|block| pairs.iter().all(|(_, to)| to != block)) {
            room.read(layer, block, 0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == CANARY), "block {block} of layer {layer}");
        }
    }
}

/// Asserts that no byte of decode's pool is one of prefill's.
pub fn assert_untouched(room: &Pool) {
    let mut bytes = vec![0; room.layout().layer_block_bytes() as usize];
    for (layer, block) in
        (0..WHOLE.layers).flat_map(|layer| (0..WHOLE.blocks).map(move |block| (layer, block)))
    {
        room.read(layer, block, 0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == CANARY), "block {block} of layer {layer}");
    }
}
