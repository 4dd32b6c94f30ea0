//! Time of one request of one block beside links at rest.

use std::time::{Duration, Instant};

use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::layout::{Layout, Model, Order, Shape};
use rdma_collective::kv::{LinkOptions, Pool, PoolUse};
use rdma_core::{Deadline, Device, SoftOptions, Wire};

use super::joined::joined;
use crate::ratio::median;
use crate::soft::Outcome;

const LIMIT: Duration = Duration::from_secs(120);
const REQUESTS: u64 = 2000;
/// Requests that warm up, untimed.
const WARM: u64 = 200;
/// Links that any number of them fits: 1024 of a node, in 2^17 completions.
const MAX_CQE: u32 = 1 << 17;

/// Seconds of a request of one block of 64 KiB, from the grant to the end at both sides, the median of 2000. Each of
/// the two engines, which are in this process, has `idle` other links with nothing under way.
///
/// # Errors
///
/// The device's refusal, and a transfer that fails.
pub fn beside_idle(idle: u32) -> Outcome<f64> {
    let layout = Layout::new(Shape { layers: 1, ..Model::LLAMA_3_1_8B.shape(16, 1, Order::LayerBlockPart) })?;
    let context = Device::soft(SoftOptions { wire: Wire::Local, ..SoftOptions::default() }).open()?;
    let engine = || Engine::new(&context, EngineOptions { max_cqe: MAX_CQE, ..EngineOptions::default() });
    let (at_prefill, at_decode) = (engine()?, engine()?);
    let source = Pool::allocate(&at_prefill, &layout, PoolUse::Source)?;
    let destination = Pool::allocate(&at_decode, &layout, PoolUse::Destination)?;
    // Queues of a node's length.
    let options = LinkOptions { max_send_wr: 32, credits: 64, ..LinkOptions::default() };
    let link = || {
        let deadline = Deadline::after(LIMIT);
        joined((&at_prefill, &source), (&at_decode, &destination), &options, deadline)
    };
    let (prefill, decode) = link()?;
    let others = (0..idle).map(|_| link()).collect::<Outcome<Vec<_>>>()?;
    let mut seconds = Vec::new();
    for request in 0..WARM + REQUESTS {
        let (deadline, begin) = (Deadline::after(LIMIT), Instant::now());
        let grant = decode.grant(request, &[0], deadline)?;
        prefill.push(request, &[0], deadline)?.wait()?;
        grant.wait()?;
        if request >= WARM {
            seconds.push(begin.elapsed().as_secs_f64());
        }
    }
    drop(others);
    Ok(median(seconds))
}
