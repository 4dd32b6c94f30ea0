//! KV transfers over one device, both ends in one process: the time that they take, and the part of it in which plans
//! and requests are made.

use std::error::Error;
use std::time::{Duration, Instant};

use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::layout::{Layout, Model, Order, TensorParallel};
use rdma_collective::kv::{Decode, LinkOptions, Pool, PoolUse, Prefill};
use rdma_core::{Context, Deadline};

use crate::kv::joined;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Blocks of a request: with 32 layers these are 4096 of 64 KiB.
const BLOCKS: u32 = 128;
const LIMIT: Duration = Duration::from_secs(120);

/// The contents of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// 4096 blocks of 64 KiB.
    Blocks,
    /// Half of the heads of each of their tokens, which are neighbours at both ends: the part of one of two ranks.
    HalfOfHeads,
}

/// A request that was pushed.
#[derive(Debug, Clone, Copy)]
pub struct Pushed {
    /// Seconds that both ends spent on plans and requests.
    pub preparing: f64,
    /// Seconds that the transfer took.
    pub took: f64,
    /// Bytes that moved.
    pub bytes: u64,
    /// Writes that carried them.
    pub writes: u32,
}

/// A link over which requests are pushed, one after the other.
pub struct Link {
    moved: Moved,
    prefill: Prefill,
    decode: Decode,
    sources: Vec<u32>,
    destinations: Vec<u32>,
    requests: u64,
}

impl Link {
    /// Connects two pools over the device, with the GID of that index if one is given.
    ///
    /// # Errors
    ///
    /// The device's refusal.
    pub fn new(context: &Context, gid_index: Option<u32>, moved: Moved) -> Result<Self> {
        let whole = Model::LLAMA_3_1_8B.shape(16, BLOCKS, Order::LayerBlockPart);
        let layout = Layout::new(whole)?;
        assert_eq!(layout.layer_block_bytes(), 64 << 10, "the row says so");
        let filled = match moved {
            Moved::Blocks => layout.clone(),
            Moved::HalfOfHeads => Layout::new(whole.of_rank(TensorParallel { rank: 1, size: 2 })?)?,
        };
        let options = EngineOptions { gid_index, ..EngineOptions::default() };
        let engine = || Engine::new(context, options.clone());
        let (at_prefill, at_decode) = (engine()?, engine()?);
        let source = Pool::allocate(&at_prefill, &layout, PoolUse::Source)?;
        let destination = Pool::allocate(&at_decode, &filled, PoolUse::Destination)?;
        let (prefill, decode) = joined(
            (&at_prefill, &source),
            (&at_decode, &destination),
            &LinkOptions::default(),
            Deadline::after(LIMIT),
        )?;
        // Scattered, so that hardly any two are adjacent on both sides.
        let sources = (0..BLOCKS).map(|at| at * 37 % BLOCKS).collect();
        let destinations = (0..BLOCKS).map(|at| at * 85 % BLOCKS).collect();
        Ok(Self { moved, prefill, decode, sources, destinations, requests: 0 })
    }

    /// Pushes one request.
    ///
    /// # Errors
    ///
    /// The transfer fails.
    pub fn push(&mut self) -> Result<Pushed> {
        let preparing = |link: &Self| link.prefill.stats().preparing + link.decode.stats().preparing;
        self.requests += 1;
        let (before, started, deadline) = (preparing(self), Instant::now(), Deadline::after(LIMIT));
        let push = self.prefill.push(self.requests, &self.sources, deadline)?;
        let received = self.decode.grant(self.requests, &self.destinations, deadline)?.wait()?;
        let took = started.elapsed().as_secs_f64();
        push.wait()?;
        let all = u64::from(BLOCKS) * 32 * (64 << 10);
        let expected = if self.moved == Moved::Blocks { all } else { all / 2 };
        if received.bytes != expected {
            return Err("another number of bytes than the blocks have".into());
        }
        let (preparing, bytes, writes) =
            ((preparing(self) - before).as_secs_f64(), received.bytes, received.writes);
        Ok(Pushed { preparing, took, bytes, writes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdma_core::{Device, SoftOptions};

    #[test]
    fn preparing_is_a_part_of_the_transfer() {
        let context = Device::soft(SoftOptions::default()).open().unwrap();
        for (moved, bytes_a_write) in [(Moved::Blocks, 64 << 10), (Moved::HalfOfHeads, 4 << 10)] {
            let pushed = Link::new(&context, None, moved).unwrap().push().unwrap();
            assert!(pushed.preparing > 0.0 && pushed.preparing < pushed.took, "{pushed:?}");
            assert!(pushed.bytes / u64::from(pushed.writes) >= bytes_a_write, "{pushed:?}");
        }
    }
}
