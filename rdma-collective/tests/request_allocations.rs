//! A request costs what it has, and not what the pools have. Allocations are counted in the whole process, so this test
//! is alone in its own.

mod common;
mod pair;

use std::alloc::System;

use common::long;
use pair::{engine_driven, link};
use rdma_collective::engine::Driver;
use rdma_collective::kv::layout::{Attention, Layout, Shape};
use rdma_collective::kv::{LinkOptions, Pool, PoolUse};
use rdma_core::Wire;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WARM_UP: u64 = 5;
const REQUESTS: u64 = 20;
const BLOCKS: u32 = 8;

/// Bytes that pushing and granting requests of eight blocks allocates, in pools of `blocks` blocks.
fn allocated(blocks: u32) -> usize {
    let attention = Attention::Grouped { kv_heads: 1, head_dim: 8 };
    let layout = Layout::new(Shape { layers: 2, blocks, block_tokens: 1, attention, ..pair::SHAPE }).unwrap();
    let engine = engine_driven(Wire::Local, None, Driver::Caller);
    let source = Pool::allocate(&engine, &layout, PoolUse::Source).unwrap();
    let room = Pool::allocate(&engine, &layout, PoolUse::Destination).unwrap();
    let (prefill, decode) = link((&engine, &source), (&engine, &room), &LinkOptions::default());
    let mut before = ALLOCATOR.stats();
    for request in 0..WARM_UP + REQUESTS {
        if request == WARM_UP {
            before = ALLOCATOR.stats();
        }
        let ids: Vec<u32> = (0..BLOCKS).map(|at| (at * 8191 + request as u32) % blocks).collect();
        let grant = decode.grant(request, &ids, long()).unwrap();
        let push = prefill.push(request, &ids, long()).unwrap();
        assert!(grant.wait().unwrap().verdicts.all_valid());
        push.wait().unwrap();
    }
    (ALLOCATOR.stats() - before).bytes_allocated
}

#[test]
fn a_request_allocates_as_much_in_a_pool_of_a_million_blocks_as_in_one_of_a_thousand() {
    let (small, large) = (allocated(1_000), allocated(1_000_000));
    println!(
        "{REQUESTS} requests of {BLOCKS} blocks: {small} bytes in a pool of 1000, {large} in one of 1000000"
    );
    assert!(small > 0, "the counter counts");
    // Numbers near each other may need a few more bytes in one pool than in the other; a flag a block would be a
    // million bytes a request.
    assert!(large < 2 * small, "{large} bytes against {small}");
}
