//! Time of one request of one block beside peers at rest.

use std::time::Instant;

use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::layout::{Layout, Model, Order, Shape};
use rdma_collective::kv::{KvNode, NodeOptions, Pool, PoolUse};
use rdma_core::{Device, SoftOptions, Wire};

use super::member::{TOKEN, options};
use super::within;
use crate::ratio::median;
use crate::soft::Outcome;

const REQUESTS: u64 = 2000;
/// Requests that warm up, untimed.
const WARM: u64 = 200;
/// Completions of an engine that has two links to each of the peers.
const MAX_CQE: u32 = 1 << 17;

/// Seconds of a request of one block of 64 KiB, from the grant to the end at both sides, the median of 2000. Each of
/// the two nodes has `idle` other peers, with links over which a block has moved before. All are in this process.
///
/// # Errors
///
/// The device's refusal, and a transfer that fails.
pub fn beside_idle(idle: u32) -> Outcome<f64> {
    let layout = Layout::new(Shape { layers: 1, ..Model::LLAMA_3_1_8B.shape(16, 1, Order::LayerBlockPart) })?;
    let context = Device::soft(SoftOptions { wire: Wire::Local, ..SoftOptions::default() }).open()?;
    let engine = || Engine::new(&context, EngineOptions { max_cqe: MAX_CQE, ..EngineOptions::default() });
    let node = |engine: &Engine, name: &str, pools: &[&Pool]| {
        // The idle ones, and the other of the two.
        let options = NodeOptions { peers_max: idle as usize + 2, ..options(name) };
        KvNode::new(engine, pools, &TOKEN, &options)
    };
    let (at_prefill, at_decode, at_idle) = (engine()?, engine()?, engine()?);
    let pool = |engine, purpose| Pool::allocate(engine, &layout, purpose);
    let prefill = node(&at_prefill, "prefill", &[&pool(&at_prefill, PoolUse::Source)?])?;
    let decode = node(&at_decode, "decode", &[&pool(&at_decode, PoolUse::Destination)?])?;
    let pools = [pool(&at_idle, PoolUse::Source)?, pool(&at_idle, PoolUse::Destination)?];
    let mut others = Vec::new();
    for at in 0..idle {
        let other = node(&at_idle, &format!("idle-{at}"), &[&pools[0], &pools[1]])?;
        meet(&prefill, &other)?;
        meet(&other, &decode)?;
        others.push(other);
    }
    meet(&prefill, &decode)?;
    let mut seconds = Vec::new();
    for request in 1..=WARM + REQUESTS {
        let begin = Instant::now();
        one(&prefill, &decode, request)?;
        if request > WARM {
            seconds.push(begin.elapsed().as_secs_f64());
        }
    }
    drop(others);
    Ok(median(seconds))
}

/// Connects two nodes, and moves a block, so that there is a link.
fn meet(from: &KvNode, to: &KvNode) -> Outcome<()> {
    from.connect(&to.export(), within()).wait()?;
    // The links are made when both ends ask.
    std::thread::scope(|scope| {
        let granted = scope.spawn(|| to.grant(from.name().as_str(), 0, &[0], within()).wait());
        let push = from.push(to.name().as_str(), 0, &[0], within()).wait()?;
        granted.join().map_err(|_| "the thread of a grant panicked")??.wait()?;
        push.wait()?;
        Ok(())
    })
}

fn one(from: &KvNode, to: &KvNode, request: u64) -> Outcome<()> {
    let grant = to.grant(from.name().as_str(), request, &[0], within()).wait()?;
    from.push(to.name().as_str(), request, &[0], within()).wait()?.wait()?;
    grant.wait()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_beside_idle_peers_takes_time() {
        assert!(beside_idle(2).unwrap() > 0.0);
    }
}
