//! Threads of the parent, which use the device while children are made: transfers, queries, registrations.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rdma_core::{Access, Context, Deadline, LocalBuf, PortNum, Segment, Work, WorkerOptions, loopback};

/// Transfers that must be whole meanwhile.
const TRANSFERS_MIN: u32 = 1000;
const BYTES: usize = 4096;

pub fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// Runs `calls` while threads use `context`, and checks every byte of their transfers.
pub fn meanwhile(context: &Context, calls: impl FnOnce()) {
    let (ended, transfers) = (&AtomicBool::new(false), &AtomicU32::new(0));
    std::thread::scope(|scope| {
        let goes_on = || !ended.load(Ordering::Relaxed) || transfers.load(Ordering::Relaxed) < TRANSFERS_MIN;
        scope.spawn(move || transfer(context, transfers, goes_on));
        scope.spawn(move || ask(context, goes_on));
        scope.spawn(move || register(context, goes_on));
        let _ends = Ends(ended);
        calls();
    });
    let transfers = transfers.load(Ordering::Relaxed);
    assert!(transfers >= TRANSFERS_MIN, "{transfers}");
    println!("{transfers} transfers of the parent were whole");
}

/// Ends the threads, also when a call panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes and sends, one request at a time, and compares the bytes that arrived.
fn transfer(context: &Context, transfers: &AtomicU32, goes_on: impl Fn() -> bool) {
    let pd = context.alloc_pd().unwrap();
    let mut worker = context.worker(WorkerOptions::default()).unwrap();
    let (left, right) = loopback(&mut worker, &pd).unwrap();
    let target = pd.alloc_region(BYTES, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let mut source = pd.alloc_local(BYTES).unwrap();
    let mut received = Some(pd.alloc_local(BYTES).unwrap());
    let mut arrived = vec![0; BYTES];
    while goes_on() {
        let round = transfers.load(Ordering::Relaxed);
        fill(&mut source, round);
        let expected = source.to_vec();
        if round.is_multiple_of(2) {
            worker.post(&left, Work::write(source, target.remote())).unwrap();
            source = worker.wait(soon()).map(|done| (done.result.unwrap(), done.buffer).1.unwrap()).unwrap();
            target.copy_out(0, &mut arrived).unwrap();
        } else {
            worker.post_recv(&right, Segment::from(received.take().unwrap())).unwrap();
            let sent = worker.post(&left, Work::send(source)).unwrap();
            let mut back = None;
            for _ in 0..2 {
                let done = worker.wait(soon()).unwrap();
                done.result.unwrap();
                *if done.id == sent { &mut back } else { &mut received } = done.buffer;
            }
            source = back.unwrap();
            arrived.copy_from_slice(received.as_ref().unwrap());
        }
        assert!(arrived == expected, "transfer {round} has other bytes");
        transfers.fetch_add(1, Ordering::Relaxed);
    }
}

fn fill(buffer: &mut LocalBuf, round: u32) {
    for (index, word) in buffer.chunks_exact_mut(4).enumerate() {
        word.copy_from_slice(&(round.wrapping_mul(0x9e37_79b9) ^ index as u32).to_ne_bytes());
    }
}

/// Asks the port and takes events.
fn ask(context: &Context, goes_on: impl Fn() -> bool) {
    while goes_on() {
        let port = context.port(PortNum(1)).unwrap();
        assert!(!context.gids(PortNum(1)).unwrap().is_empty(), "{port:?}");
        context.next_event().unwrap();
    }
}

/// Registers, exports and releases memory.
fn register(context: &Context, goes_on: impl Fn() -> bool) {
    let pd = context.alloc_pd().unwrap();
    let private = pd.alloc_local(BYTES).unwrap().into_region().unwrap();
    while goes_on() {
        let region = pd.alloc_region(BYTES, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        let exported = pd.export(&private, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        exported.revoke(soon()).map_err(|refused| refused.error).unwrap();
        region.deregister().map_err(|refused| refused.error).unwrap();
    }
}
