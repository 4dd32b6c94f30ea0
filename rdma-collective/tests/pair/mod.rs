//! Both ends of a KV link in one process, with pools whose every byte is known.

#![allow(dead_code, reason = "each test file uses its part")]

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use rdma_collective::comm::bootstrap::JobToken;
use rdma_collective::comm::{Engine, EngineOptions, Meet};
use rdma_collective::kv::layout::{Attention, CacheType, Layout, Order, Shape};
use rdma_collective::kv::{Decode, LinkOptions, Pool, PoolUse, Prefill};
use rdma_core::fault::FaultPlan;
use rdma_core::{AckTimeout, Device, RetryOptions, SoftOptions, Wire};

use crate::common::long;

pub const TOKEN: JobToken = JobToken::from_bytes(*b"the token of kv.");

pub const SHAPE: Shape = Shape {
    layers: 3,
    blocks: 24,
    block_tokens: 4,
    attention: Attention::Grouped { kv_heads: 2, head_dim: 8 },
    cache_type: CacheType::Bf16,
    order: Order::LayerPartBlock,
};

/// A device that gives up within some tens of milliseconds, with what shall go wrong.
pub fn engine(wire: Wire, faults: Option<FaultPlan>) -> Engine {
    let context = Device::soft(SoftOptions { wire, faults, ..SoftOptions::default() }).open().unwrap();
    let retry = RetryOptions { ack_timeout: AckTimeout::new(10), ..RetryOptions::default() };
    let probe_after = Duration::from_millis(20);
    Engine::new(&context, EngineOptions { retry, probe_after, ..EngineOptions::default() }).unwrap()
}

pub fn pool(engine: &Engine, shape: Shape, purpose: PoolUse, fill: impl Fn(u32, u32, u64) -> u8) -> Pool {
    let pool = Pool::allocate(engine, Layout::new(shape).unwrap(), purpose).unwrap();
    for layer in 0..shape.layers {
        for block in 0..shape.blocks {
            let bytes = 0..pool.layout().layer_block_bytes();
            let bytes: Vec<u8> = bytes.map(|at| fill(layer, block, at)).collect();
            pool.write(layer, block, 0, &bytes).unwrap();
        }
    }
    pool
}

/// What prefill's pool holds.
pub fn source_byte(layer: u32, block: u32, at: u64) -> u8 {
    let place = u64::from(layer) << 40 | u64::from(block) << 20 | at;
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// What decode's pool holds before.
pub const CANARY: u8 = 0xa5;

/// Both ends of a link, in one process.
pub struct Pair {
    pub prefill: Prefill,
    pub decode: Decode,
    pub source: Pool,
    pub destination: Pool,
}

pub struct Setup {
    pub wire: Wire,
    pub source: Shape,
    pub destination: Shape,
    pub options: LinkOptions,
    /// What goes wrong at prefill and at decode.
    pub faults: [Option<FaultPlan>; 2],
}

impl Default for Setup {
    fn default() -> Self {
        let options = LinkOptions::default();
        Self { wire: Wire::Local, source: SHAPE, destination: SHAPE, options, faults: [None, None] }
    }
}

impl Setup {
    pub fn connect(self) -> Pair {
        let Self { wire, source, destination, options, faults: [at_prefill, at_decode] } = self;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let other = options.clone();
        let prefill = thread::spawn(move || {
            let engine = engine(wire, at_prefill);
            let source = pool(&engine, source, PoolUse::Source, source_byte);
            let meet = Meet::Connect(address);
            let prefill = Prefill::new(&engine, &source, &meet, &TOKEN, &other, long()).unwrap();
            (prefill, source)
        });
        let engine = engine(wire, at_decode);
        let destination = pool(&engine, destination, PoolUse::Destination, |_, _, _| CANARY);
        let meet = Meet::Accept(&listener);
        let decode = Decode::new(&engine, &destination, &meet, &TOKEN, &options, long()).unwrap();
        let (prefill, source) = prefill.join().unwrap();
        Pair { prefill, decode, source, destination }
    }
}

impl Pair {
    /// That decode's blocks hold what those of the same place in prefill's list do, and that no other byte changed.
    pub fn assert_moved(&self, pairs: &[(u32, u32)]) {
        let layout = self.destination.layout();
        let mut bytes = vec![0; layout.layer_block_bytes() as usize];
        for layer in 0..layout.shape().layers {
            for block in 0..layout.shape().blocks {
                self.destination.read(layer, block, 0, &mut bytes).unwrap();
                let source = pairs.iter().find(|(_, destination)| *destination == block);
                for (at, byte) in (0..).zip(&bytes) {
                    let expected = source.map_or(CANARY, |(source, _)| source_byte(layer, *source, at));
                    assert_eq!(*byte, expected, "byte {at} of block {block} in layer {layer}");
                }
            }
        }
    }

    /// Moves blocks as one request, both ends driven by threads of their own.
    pub fn transfer(&self, request: u64, pairs: &[(u32, u32)]) {
        let (sources, destinations): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
        thread::scope(|scope| {
            let pushing =
                scope.spawn(|| self.prefill.push(request, &sources, long()).unwrap().wait().unwrap());
            let received = self.decode.grant(request, &destinations, long()).unwrap().wait().unwrap();
            let pushed = pushing.join().unwrap();
            let bytes = self.source.layout().block_bytes() * pairs.len() as u64;
            assert!(received.verdicts.all_valid());
            assert_eq!((pushed.bytes, pushed.corrupt, received.bytes), (bytes, 0, bytes));
            assert_eq!(pushed.writes, received.writes);
        });
        assert!(sources.iter().all(|block| self.source.held(*block).is_none()));
        assert!(destinations.iter().all(|block| self.destination.held(*block).is_none()));
    }
}
