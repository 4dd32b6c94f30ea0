//! Cases on a device of libibverbs: the kernel refuses what a drop asks for.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rdma_core::{
    Access, Context, Deadline, DeviceList, ProtectionDomain, QueuePair, QueuePairOptions, Reset, Work,
    Worker, WorkerOptions, loopback,
};

use super::end::soon;
use super::ground::ONLY_LOCAL;
use super::raw;

/// The request of all verbs but the oldest: `RDMA_VERBS_IOCTL` of `rdma/rdma_user_ioctl_cmds.h`.
const VERBS_IOCTL: u32 = 0xc018_1b01;

fn open() -> Context {
    let name = std::env::var("ROCE_DEVICE").expect("ROCE_DEVICE names the device");
    let list = DeviceList::probe();
    let device =
        list.devices().iter().find(|device| device.name() == name).expect("the device of ROCE_DEVICE");
    device.open().unwrap()
}

/// A queue pair, and all that it needs.
fn made() -> (QueuePair<Reset>, Worker, ProtectionDomain, Context) {
    let context = open();
    let pd = context.alloc_pd().unwrap();
    let mut worker = context.worker(WorkerOptions::default()).unwrap();
    let qp = worker.create_queue_pair(&pd, &QueuePairOptions::default()).unwrap();
    (qp, worker, pd, context)
}

fn refuse_verbs() {
    // The other wires take long in a virtual machine, and know nothing of this device.
    ONLY_LOCAL.store(true, Ordering::Relaxed);
    raw::refuse(libc::SYS_ioctl, 1, VERBS_IOCTL..VERBS_IOCTL + 1);
}

/// Drops a worker whose objects the kernel does not destroy.
pub fn objects_are_not_destroyed() {
    let made = made();
    refuse_verbs();
    drop(made);
}

pub fn domain_is_not_deallocated() {
    let pd = open().alloc_pd().unwrap();
    refuse_verbs();
    drop(pd);
}

/// Checks that the device works, in a process without a filter.
pub fn check() {
    let context = open();
    println!("device {} works afterwards", context.name());
    let pd = context.alloc_pd().unwrap();
    let mut worker = context.worker(WorkerOptions::default()).unwrap();
    let (left, _right) = loopback(&mut worker, &pd).unwrap();
    let target = pd.alloc_region(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let mut source = pd.alloc_local(4096).unwrap();
    source.fill(7);
    worker.post(&left, Work::write(source, target.remote())).unwrap();
    worker.wait(soon()).unwrap().result.unwrap();
    let mut bytes = [0; 4096];
    target.copy_out(0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 4096]);
    assert!(worker.wait(Deadline::after(Duration::ZERO)).is_err(), "nothing else was posted");
}
