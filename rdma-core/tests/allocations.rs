//! Posting and completing allocate nothing. Allocations are counted in the whole process, so in every thread
//! of the library.
//!
//! A test for each device, alone in its process, because allocations of another test would be counted, too.

use std::alloc::System;
use std::time::Duration;

use rdma_core::{
    Access, Attached, Context, Deadline, Device, DeviceList, QueuePair, ReadyToSend, Region, Segment,
    SoftOptions, Wire, Work, Worker, WorkerOptions, loopback,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Stats, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const POSTS: usize = 10_000;
const WINDOWS_MAX: usize = 5;
const CHAIN: usize = 16;
const BYTES: usize = 64;

#[test]
#[ignore = "needs an RDMA device: cargo xtask soft-roce"]
fn nothing_is_allocated_on_an_rdma_device() {
    let name = std::env::var("ROCE_DEVICE").expect("ROCE_DEVICE names the device to test");
    let context = DeviceList::probe().find(&name).unwrap().open().unwrap();
    println!("device: {}", context.name());
    nothing_is_allocated(&context);
}

#[test]
fn nothing_is_allocated_on_the_software_device() {
    for wire in [Wire::Local, Wire::Mapped, Wire::Tcp] {
        println!("wire: {wire:?}");
        let options = SoftOptions { wire, ..SoftOptions::default() };
        nothing_is_allocated(&Device::soft(options).open().unwrap());
    }
}

/// Runs chains of writes with an immediate, whose receives are posted again as they complete.
fn nothing_is_allocated(context: &Context) {
    let pd = context.alloc_pd().unwrap();
    let mut worker = context.worker(WorkerOptions::default()).unwrap();
    let (left, right) = loopback(&mut worker, &pd).unwrap();
    let target = pd.alloc_region(BYTES, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let source = pd.alloc_region(BYTES, Access::LOCAL_WRITE).unwrap();
    let source = worker.attach(&source);
    let mut round = || one_chain(&mut worker, &left, &right, source, &target);
    let before = ALLOCATOR.stats();
    drop(std::hint::black_box(Box::new(0_u64)));
    assert!((ALLOCATOR.stats() - before).allocations > 0, "the counter counts");
    // A thread that starts, of the device or of the test harness, allocates once. It spoils one window, but
    // not all of them.
    let windows: Vec<_> = (0..WINDOWS_MAX)
        .map(|_| {
            let before = ALLOCATOR.stats();
            (0..POSTS.div_ceil(CHAIN)).for_each(|_| round());
            ALLOCATOR.stats() - before
        })
        .collect();
    let quiet = |stats: &Stats| stats.allocations + stats.reallocations + stats.deallocations == 0;
    assert!(
        windows.iter().any(quiet),
        "each of {WINDOWS_MAX} windows of {POSTS} posts allocated: {windows:?}"
    );
}

fn one_chain(
    worker: &mut Worker,
    left: &QueuePair<ReadyToSend>,
    right: &QueuePair<ReadyToSend>,
    source: Attached,
    target: &Region,
) {
    let mut batch = worker.batch(right);
    for _ in 0..CHAIN {
        batch.push(Work::recv(Segment::Empty)).unwrap();
    }
    batch.submit().unwrap();
    let mut batch = worker.batch(left);
    for index in 0..CHAIN {
        let work = Work::write(source.range(0, BYTES), target.remote()).with_imm(index as u32);
        batch.push(if index + 1 == CHAIN { work } else { work.unsignalled() }).unwrap();
    }
    batch.submit().unwrap();
    let deadline = Deadline::after(Duration::from_secs(60));
    for _ in 0..2 * CHAIN {
        worker.wait(deadline).unwrap().result.unwrap();
    }
}
