//! Both ends of a KV link in one process, with pools whose every byte is known.

#![allow(dead_code, reason = "each test file uses its part")]

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use rdma_collective::bootstrap::JobToken;
use rdma_collective::engine::{Driver, Engine, EngineOptions};
use rdma_collective::kv::layout::{Attention, CacheType, HeadOrder, Layout, Order, Shape, TensorParallel};
use rdma_collective::kv::{BlockVerdict, Decode, LinkOptions, Pool, PoolUse, Prefill, Verdicts};
use rdma_collective::link::Meet;
use rdma_core::fault::FaultPlan;
use rdma_core::{AckTimeout, Context, Device, RetryOptions, SoftOptions, Wire};

use crate::common::long;

pub const TOKEN: JobToken = JobToken::from_bytes(*b"the token of kv.");

pub const SHAPE: Shape = Shape {
    layers: 3,
    blocks: 24,
    block_tokens: 4,
    attention: Attention::Grouped { kv_heads: 2, head_dim: 8 },
    cache_type: CacheType::Bf16,
    order: Order::LayerPartBlock,
    head_order: HeadOrder::Nhd,
    tensor_parallel: TensorParallel::WHOLE,
};

/// A device that gives up within some tens of milliseconds, with what shall go wrong.
pub fn engine(wire: Wire, faults: Option<FaultPlan>) -> Engine {
    engine_driven(wire, faults, Driver::Thread)
}

pub fn engine_driven(wire: Wire, faults: Option<FaultPlan>, driver: Driver) -> Engine {
    engine_on(&Device::soft(SoftOptions { wire, faults, ..SoftOptions::default() }).open().unwrap(), driver)
}

pub fn engine_on(context: &Context, driver: Driver) -> Engine {
    engine_over(std::slice::from_ref(context), driver)
}

/// An engine over several devices.
pub fn engine_over(contexts: &[Context], driver: Driver) -> Engine {
    let retry = Some(RetryOptions { ack_timeout: AckTimeout::new(10), ..RetryOptions::default() });
    let heartbeat = Duration::from_millis(20);
    let options = EngineOptions { retry, heartbeat, driver, ..EngineOptions::default() };
    let devices: Vec<_> = contexts.iter().map(|context| (context.clone(), options.clone())).collect();
    Engine::over(&devices).unwrap()
}

pub fn pool(engine: &Engine, shape: Shape, purpose: PoolUse, content: impl Fn(u32, u32, u64) -> u8) -> Pool {
    let pool = Pool::allocate(engine, &Layout::new(shape).unwrap(), purpose).unwrap();
    fill(&pool, content);
    pool
}

/// Writes every byte of every block.
pub fn fill(pool: &Pool, content: impl Fn(u32, u32, u64) -> u8) {
    let shape = *pool.layout().shape();
    for layer in 0..shape.layers {
        for block in 0..shape.blocks {
            let bytes = 0..pool.layout().layer_block_bytes();
            let bytes: Vec<u8> = bytes.map(|at| content(layer, block, at)).collect();
            pool.write(layer, block, 0, &bytes).unwrap();
        }
    }
}

/// The bytes in prefill's pool.
pub fn source_byte(layer: u32, block: u32, at: u64) -> u8 {
    let place = u64::from(layer) << 40 | u64::from(block) << 20 | at;
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// The bytes in decode's pool before a transfer.
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
    /// The faults at prefill and at decode.
    pub faults: [Option<FaultPlan>; 2],
    /// The driver of prefill's engine; a caller drives it only while it waits.
    pub driver: Driver,
}

impl Default for Setup {
    fn default() -> Self {
        let options = LinkOptions::default();
        Self {
            wire: Wire::Local,
            source: SHAPE,
            destination: SHAPE,
            options,
            faults: [None, None],
            driver: Driver::Thread,
        }
    }
}

/// A link between two pools of one process, over a TCP connection.
pub fn link(
    (at_prefill, source): (&Engine, &Pool),
    (at_decode, destination): (&Engine, &Pool),
    options: &LinkOptions,
) -> (Prefill, Decode) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let prefill = scope.spawn(|| {
            Prefill::new(at_prefill, source, &Meet::Connect(address), &TOKEN, options, long()).unwrap()
        });
        let meet = Meet::Accept(&listener);
        let decode = Decode::new(at_decode, destination, &meet, &TOKEN, options, long()).unwrap();
        (prefill.join().unwrap(), decode)
    })
}

impl Setup {
    pub fn connect(self) -> Pair {
        let Self { wire, source, destination, options, faults: [at_prefill, at_decode], driver } = self;
        let (at_prefill, at_decode) = (engine_driven(wire, at_prefill, driver), engine(wire, at_decode));
        let source = pool(&at_prefill, source, PoolUse::Source, source_byte);
        let destination = pool(&at_decode, destination, PoolUse::Destination, |_, _, _| CANARY);
        let (prefill, decode) = link((&at_prefill, &source), (&at_decode, &destination), &options);
        Pair { prefill, decode, source, destination }
    }
}

/// Asserts that each block of `pool` holds the block at the same index of prefill's list, and that no other byte
/// changed.
pub fn assert_moved(pool: &Pool, pairs: &[(u32, u32)]) {
    let layout = pool.layout();
    let mut bytes = vec![0; layout.layer_block_bytes() as usize];
    for layer in 0..layout.shape().layers {
        for block in 0..layout.shape().blocks {
            pool.read(layer, block, 0, &mut bytes).unwrap();
            let source = pairs.iter().find(|(_, destination)| *destination == block);
            for (at, byte) in (0..).zip(&bytes) {
                let expected = source.map_or(CANARY, |(source, _)| source_byte(layer, *source, at));
                assert_eq!(*byte, expected, "byte {at} of block {block} in layer {layer}");
            }
        }
    }
}

impl Pair {
    /// Asserts that each block which is called valid holds the bytes of its source.
    pub fn assert_true(&self, pairs: &[(u32, u32)], verdicts: &Verdicts) {
        let mut bytes = vec![0; self.destination.layout().layer_block_bytes() as usize];
        for layer in 0..self.destination.layout().shape().layers {
            for (place, &(source, destination)) in pairs.iter().enumerate() {
                self.destination.read(layer, destination, 0, &mut bytes).unwrap();
                let valid = verdicts.get(layer, place) == Some(BlockVerdict::Valid);
                for (at, byte) in (0..).zip(&bytes) {
                    let whole = *byte == source_byte(layer, source, at);
                    assert!(whole || !valid, "byte {at} of block {destination} in layer {layer}");
                }
            }
        }
    }

    /// [`assert_moved`], of decode's pool.
    pub fn assert_moved(&self, pairs: &[(u32, u32)]) {
        assert_moved(&self.destination, pairs);
    }

    /// Moves blocks as one request, both ends driven by threads of their own.
    pub fn transfer(&self, request: u64, pairs: &[(u32, u32)]) {
        transfer(&self.prefill, &self.decode, request, pairs);
        assert!(pairs.iter().all(|(block, _)| self.source.held(*block).is_none()));
        assert!(pairs.iter().all(|(_, block)| self.destination.held(*block).is_none()));
    }
}

/// Moves blocks as one request over a link, both ends driven by threads of their own.
pub fn transfer(prefill: &Prefill, decode: &Decode, request: u64, pairs: &[(u32, u32)]) {
    let (sources, destinations): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
    thread::scope(|scope| {
        let pushing = scope.spawn(|| prefill.push(request, &sources, long()).unwrap().wait().unwrap());
        let received = decode.grant(request, &destinations, long()).unwrap().wait().unwrap();
        let pushed = pushing.join().unwrap();
        let bytes = decode.pool().layout().block_bytes() * pairs.len() as u64;
        assert!(received.verdicts.all_valid());
        assert_eq!((pushed.bytes, pushed.corrupt, received.bytes), (bytes, 0, bytes));
        assert_eq!(pushed.writes, received.writes);
    });
}

/// A blob as a line, for a process that hears lines.
pub fn line(bytes: &[u8]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("blob {hex}\n")
}

/// The blob of a [`line`].
pub fn parse(line: &str) -> Option<Vec<u8>> {
    let (_, hex) = line.split_once("blob ")?;
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()).collect()
}

/// Waits until nothing holds the blocks.
pub fn assert_freed(pool: &Pool, blocks: &[u32]) {
    let deadline = long();
    while blocks.iter().any(|block| pool.held(*block).is_some()) {
        assert!(!deadline.expired(), "blocks stay held");
        thread::yield_now();
    }
}
