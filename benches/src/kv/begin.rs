//! Time that the calls which begin a request take in the caller's thread.

use std::time::{Duration, Instant};

use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::layout::{Attention, Layout, Model, Order, Shape};
use rdma_collective::kv::{LinkOptions, Pool, PoolUse};
use rdma_core::{Deadline, Device, SoftOptions, Wire};

use super::joined::joined;
use crate::ratio::median;
use crate::soft::Outcome;

const LIMIT: Duration = Duration::from_secs(120);
const REQUESTS: u64 = 1000;
/// Blocks of a request.
const EACH: u32 = 8;

/// Seconds of a grant and a push of eight blocks in pools of `blocks`, the median of a thousand. Both ends are in this
/// process.
///
/// # Errors
///
/// The device's refusal, and a transfer that fails.
pub fn begin(blocks: u32) -> Outcome<f64> {
    let small = Shape {
        layers: 1,
        attention: Attention::Grouped { kv_heads: 1, head_dim: 8 },
        ..Model::LLAMA_3_1_8B.shape(1, blocks, Order::LayerBlockPart)
    };
    let layout = Layout::new(small)?;
    let context = Device::soft(SoftOptions { wire: Wire::Local, ..SoftOptions::default() }).open()?;
    let engine = Engine::new(&context, EngineOptions::default())?;
    let source = Pool::allocate(&engine, &layout, PoolUse::Source)?;
    let destination = Pool::allocate(&engine, &layout, PoolUse::Destination)?;
    // A server has used all of its pool before; so have the blocks here.
    for (pool, block) in
        [&source, &destination].into_iter().flat_map(|pool| (0..blocks).map(move |block| (pool, block)))
    {
        pool.write(0, block, 0, &[1; 16])?;
    }
    let (prefill, decode) =
        joined((&engine, &source), (&engine, &destination), &LinkOptions::default(), Deadline::after(LIMIT))?;
    let mut seconds = Vec::new();
    for request in 1..=REQUESTS {
        let at = |step: u64| {
            (0..EACH)
                .map(move |block| ((request * step + u64::from(block) * 7919) % u64::from(blocks)) as u32)
        };
        let (from, to): (Vec<_>, Vec<_>) = (at(104_729).collect(), at(15_485_863).collect());
        let (deadline, begin) = (Deadline::after(LIMIT), Instant::now());
        let grant = decode.grant(request, &to, deadline)?;
        let push = prefill.push(request, &from, deadline)?;
        seconds.push(begin.elapsed().as_secs_f64());
        push.wait()?;
        grant.wait()?;
    }
    Ok(median(seconds))
}
