//! The surroundings of every case: devices that the subscriber calls, canaries, and a check that devices still work.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use rdma_core::fault::FaultPlan;
use rdma_core::{
    Access, Context, Device, Memory, PortNum, PortState, ProtectionDomain, QueuePair, ReadyToSend, Segment,
    SoftOptions, Wire, Work, Worker, WorkerOptions, loopback, quarantined,
};

use super::end::soon;

/// Bytes of every canary.
const CANARY: usize = 60_000;

/// A device that the case does not use, for the subscriber.
struct Ground {
    context: Context,
    pd: ProtectionDomain,
    /// Taken by one thread at a time; another one leaves it out.
    worker: Mutex<(Worker, QueuePair<ReadyToSend>, QueuePair<ReadyToSend>)>,
    calls: AtomicUsize,
}

static GROUND: OnceLock<Ground> = OnceLock::new();
/// Set by a case that leaves a process in which only [`Wire::Local`] works, or is to be checked.
pub static ONLY_LOCAL: AtomicBool = AtomicBool::new(false);

pub fn device(wire: Wire) -> Context {
    Device::soft(SoftOptions { wire, ..SoftOptions::default() }).open().unwrap()
}

pub fn lay() {
    let context = device(Wire::Auto);
    let pd = context.alloc_pd().unwrap();
    let mut worker = context.worker(WorkerOptions::default()).unwrap();
    let (left, right) = loopback(&mut worker, &pd).unwrap();
    let worker = Mutex::new((worker, left, right));
    let laid = GROUND.set(Ground { context, pd, worker, calls: AtomicUsize::new(0) });
    assert!(laid.is_ok());
}

/// Calls the library from within a line: queries, registrations, drops, a post and polls. Nothing of it may wait for
/// ever; an error is fine, because a case may have taken the descriptors.
pub fn call_back() {
    let Some(ground) = GROUND.get() else { return };
    let _ = ground.context.port(PortNum(1));
    let _ = ground.context.gids(PortNum(1));
    let _ = ground.context.next_event();
    let _ = ground.pd.alloc_region(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE).map(drop);
    let _ = ground.pd.register(Memory::adopt(vec![1; 64]), Access::LOCAL_WRITE).map(drop);
    let _ = Device::soft(SoftOptions::default()).open().map(drop);
    let _ = quarantined();
    if let Ok(mut worker) = ground.worker.try_lock() {
        let (worker, left, right) = &mut *worker;
        worker.post_recv(right, Segment::Empty).unwrap();
        worker.post(left, Work::send(Segment::Empty)).unwrap();
        for _ in 0..2 {
            assert!(worker.wait(soon()).unwrap().result.is_ok());
        }
    }
    ground.calls.fetch_add(1, Ordering::Relaxed);
}

/// Whether the subscriber has made all its calls, at least once.
pub fn was_called() -> bool {
    GROUND.get().is_some_and(|ground| ground.calls.load(Ordering::Relaxed) > 0)
}

/// Memory of the caller, which counts when it is freed.
pub struct Owner(pub Vec<u8>);

pub static FREED: AtomicUsize = AtomicUsize::new(0);

impl AsMut<[u8]> for Owner {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        FREED.fetch_add(1, Ordering::SeqCst);
    }
}

/// Memory that safe code gets after the case; the allocator likely puts some of it where freed memory was.
pub fn canaries() -> Vec<Vec<u8>> {
    (0..8).map(|_| vec![0xaa; CANARY]).collect()
}

pub fn assert_unchanged(canaries: &[Vec<u8>]) {
    let hit = canaries.iter().filter(|canary| canary.iter().any(|byte| *byte != 0xaa)).count();
    assert_eq!(hit, 0, "vectors of safe code were overwritten");
}

/// Checks that devices work: those that were open before the case, new ones, and their thread.
pub fn check() {
    let canaries = canaries();
    let ground = GROUND.get().unwrap();
    let calls = ground.calls.load(Ordering::Relaxed);
    call_back();
    assert!(ground.calls.load(Ordering::Relaxed) > calls, "the device of the subscriber is stuck");
    let only_local = ONLY_LOCAL.load(Ordering::Relaxed);
    for wire in [Wire::Local, Wire::Tcp, Wire::Mapped].into_iter().take(if only_local { 1 } else { 3 }) {
        transfer(wire);
    }
    // Only the thread of the devices reads the clock, so only that thread brings the port back.
    let faults = FaultPlan::seeded(1);
    let options = SoftOptions { wire: Wire::Local, faults: Some(faults.clone()), ..SoftOptions::default() };
    let context = Device::soft(options).open().unwrap();
    faults.flap_port(Duration::from_millis(20));
    let until = soon();
    while context.port(PortNum(1)).unwrap().state != PortState::ACTIVE {
        assert!(!until.expired(), "the thread of the devices has ended");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_unchanged(&canaries);
}

/// Writes between two queue pairs of a new device.
fn transfer(wire: Wire) {
    let context = device(wire);
    let pd = context.alloc_pd().unwrap();
    let mut worker = context.worker(WorkerOptions::default()).unwrap();
    let (left, _right) = loopback(&mut worker, &pd).unwrap();
    let target = pd.alloc_region(1 << 20, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    for round in 1..5 {
        let mut source = pd.alloc_local(1 << 20).unwrap();
        source.fill(round);
        worker.post(&left, Work::write(source, target.remote())).unwrap();
        worker.wait(soon()).unwrap().result.unwrap();
        let mut bytes = vec![0; 1 << 20];
        target.copy_out(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == round), "{wire:?}: the transfer is not whole");
    }
}
