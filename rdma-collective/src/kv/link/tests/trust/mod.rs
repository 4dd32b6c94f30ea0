//! A peer that has a valid blob and speaks verbs directly: what the keys of its link let it do.

mod had;
mod open;
mod strict;

use std::thread;
use std::time::{Duration, Instant};

use rdma_core::fault::{Fault, FaultPlan, Rule};
use rdma_core::memory::CacheHint;
use rdma_core::{Access, Deadline, Device, Memory, Region, RemoteMemory, SoftOptions, Wire};

use super::payload::Payload;
use crate::bootstrap::JobToken;
use crate::engine::{Engine, EngineOptions, LaneId};
use crate::kv::layout::{Group, Layout, Model, Order, Shape, Tensors};
use crate::kv::link::LinkOptions;
use crate::kv::pool::Pieces;
use crate::kv::tests::SHAPE;
use crate::kv::{Decode, HoldKind, KvError, Pool, PoolUse, Prefill};
use crate::link::imm::Imm;
use crate::link::{Blob, FIRST_RAIL, LinkKind};

const TOKEN: JobToken = JobToken::from_bytes([1; 16]);
const WIRES: [Wire; 3] = [Wire::Local, Wire::Mapped, Wire::Tcp];
/// The byte that the hostile peer writes.
const EVIL: u8 = 0x66;
/// The bytes of its writes.
const LEN: u64 = 16;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn engine(wire: Wire, faults: Option<FaultPlan>) -> Engine {
    let context = Device::soft(SoftOptions { wire, faults, ..SoftOptions::default() }).open().unwrap();
    Engine::new(&context, EngineOptions::default()).unwrap()
}

fn layout() -> Layout {
    Layout::new(SHAPE).unwrap()
}

/// A link over blobs that the caller carries.
fn link(prefill: (&Engine, &Pool), decode: (&Engine, &Pool)) -> (Prefill, Decode) {
    link_of(&LinkOptions::default(), prefill, decode)
}

/// A link with options.
fn link_of(
    options: &LinkOptions,
    (prefills, source): (&Engine, &Pool),
    (decodes, destination): (&Engine, &Pool),
) -> (Prefill, Decode) {
    let options = LinkOptions { linger: Duration::from_millis(20), ..options.clone() };
    let mut prefill = Prefill::prepare(prefills, source, &TOKEN, &options).unwrap();
    let mut decode = Decode::prepare(decodes, destination, &TOKEN, &options).unwrap();
    let (to_decode, to_prefill) = (prefill.export().to_vec(), decode.export().to_vec());
    thread::scope(|scope| {
        let prefill = scope.spawn(|| prefill.connect(&to_prefill, soon()).unwrap());
        let decode = decode.connect(&to_decode, soon()).unwrap();
        (prefill.join().unwrap(), decode)
    })
}

/// The memory that a blob tells of.
fn told(blob: &[u8]) -> Option<Pieces<RemoteMemory>> {
    let (blob, _) = Blob::decode(blob, LinkKind::KV, TOKEN.fingerprint()).unwrap();
    Payload::decode(&blob.payload).unwrap().memory
}

/// Waits until the first grant has arrived at its prefill.
fn wait_for_grant(prefill: &Prefill) {
    let started = Instant::now();
    while !prefill.shared().lock().is_granted(0) {
        assert!(started.elapsed() < Duration::from_secs(20), "no grant has arrived");
        thread::sleep(Duration::from_micros(100));
    }
}

/// The whole pool of decode, as the prefill of a link names it.
fn of_decode(prefill: &Prefill) -> RemoteMemory {
    *prefill.shared().lock().link.remote.as_ref().unwrap().iter().next().unwrap()
}

/// The whole pool of prefill, as the decode of a link names it.
fn of_prefill(decode: &Decode) -> RemoteMemory {
    *decode.shared().lock().link.remote.as_ref().unwrap().iter().next().unwrap()
}

/// Posts a write to any memory of the other end.
fn write((engine, lane): (&Engine, LaneId), to: RemoteMemory) {
    let mut buffer = engine.alloc_local(to.len as usize).unwrap();
    buffer.fill(EVIL);
    engine.lock_with(|core| {
        core.lane(lane).unwrap().write_owned(buffer, to, Imm::Freed { count: 0 }, true);
    });
}

/// Posts a read of any memory of the other end, and returns where its bytes would come.
fn read((engine, lane): (&Engine, LaneId), from: RemoteMemory) -> Region {
    let region = engine.register(Memory::allocate(LEN as usize).unwrap(), Access::LOCAL_WRITE).unwrap();
    engine.lock_with(|core| {
        let range = core.attach(&region).on(FIRST_RAIL).range(0, LEN as usize);
        core.lane(lane).unwrap().read_range(range, from, CacheHint::Cached, true);
    });
    region
}

/// The engine and the lane of an end.
fn at_prefill(end: &Prefill) -> (&Engine, LaneId) {
    (&end.shared().engine, end.shared().lock().link.lane)
}

/// The engine and the lane of an end.
fn at_decode(end: &Decode) -> (&Engine, LaneId) {
    (&end.shared().engine, end.shared().lock().link.lane)
}

/// Waits until the device of an engine has refused so many requests, and no more.
fn assert_refused(engine: &Engine, times: u64) {
    let (started, refused) = (Instant::now(), || engine.context().refused_requests().unwrap().unwrap());
    while refused() < times {
        assert!(started.elapsed() < Duration::from_secs(20), "{} of {times} are refused", refused());
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(refused(), times);
}

fn assert_untouched(region: &Region) {
    let mut bytes = vec![0; region.len()];
    region.copy_out(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0), "a hostile byte landed");
}

/// A region with room for a pool of decode, bytes before it, and a second pool right behind it.
fn two_pools(engine: &Engine) -> (Region, [Pool; 2]) {
    let bytes = layout().bytes() as usize;
    let memory = Memory::allocate(64 + 2 * bytes).unwrap();
    let region = engine.register(memory, PoolUse::Destination.access()).unwrap();
    let pool = |offset| Pool::in_region(engine, &region, offset, &layout(), PoolUse::Destination).unwrap();
    let pools = [pool(64), pool(64 + bytes)];
    (region, pools)
}

/// An engine at each end, a pool of prefill, and two pools of decode in one region, of which links use the first.
struct Scene {
    prefills: Engine,
    decodes: Engine,
    source: Pool,
    region: Region,
    pool: Pool,
    _other: Pool,
}

impl Scene {
    fn new(wire: Wire) -> Self {
        let (prefills, decodes) = (engine(wire, None), engine(wire, None));
        let source = Pool::allocate(&prefills, &layout(), PoolUse::Source).unwrap();
        let (region, [pool, _other]) = two_pools(&decodes);
        Self { prefills, decodes, source, region, pool, _other }
    }
}
