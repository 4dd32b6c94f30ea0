//! Calls on devices, domains, workers and queue pairs.

use std::os::fd::AsRawFd;
use std::time::Duration;

use rdma_core::fault::FaultPlan;
use rdma_core::{
    Device, DeviceList, InitOptions, Memory, PortNum, QueuePairOptions, RetryOptions, Segment, SoftOptions,
    Work, WorkerOptions, interface_addresses, loopback,
};

use super::{Call, Outcome, done, harmless, refused, told};
use crate::busy::soon;
use crate::fixture::{ALL, BYTES, Fixture};

/// A child may open a device that its parent does not drive: only software devices are the parent's.
fn open(f: Fixture) -> Outcome {
    match f.context.is_soft() {
        true => told(f.device.open()),
        false => Outcome::Absent,
    }
}

fn submit(mut f: Fixture) -> Outcome {
    let target = f.region.remote();
    let mut batch = f.worker.batch(&f.left);
    told(batch.push(Work::write(f.local, target)).map_err(|refused| refused.error.to_string()).and_then(
        |_| {
            let partial = batch.submit().err().ok_or("it was submitted")?;
            assert_eq!((partial.posted, partial.rejected.len()), (0, 1));
            Err::<(), _>(partial.error.to_string())
        },
    ))
}

pub const CALLS: &[Call] = &[
    refused("Context::alloc_pd", |f| told(f.context.alloc_pd())),
    refused("Context::attributes", |f| told(f.context.attributes())),
    harmless("Context::event_fd", |f| done(f.context.event_fd().as_raw_fd())),
    refused("Context::details", |f| told(f.context.details())),
    refused("Context::gids", |f| told(f.context.gids(PortNum(1)))),
    harmless("Context::is_soft", |f| done(f.context.is_soft())),
    harmless("Context::name", |f| done(f.context.name().len())),
    refused("Context::next_event", |f| told(f.context.next_event())),
    refused("Context::port", |f| told(f.context.port(PortNum(1)))),
    refused("Context::port_details", |f| told(f.context.port_details(PortNum(1)))),
    refused("Context::refused_requests", |f| told(f.context.refused_requests())),
    refused("Context::worker", |f| told(f.context.worker(WorkerOptions::default()))),
    harmless("Device::is_soft", |f| done(f.device.is_soft())),
    harmless("Device::name", |f| done(f.device.name().len())),
    refused("Device::open", open),
    harmless("Device::soft", |_| done(Device::soft(SoftOptions::default()))),
    harmless("DeviceList::devices", |f| done(f.list.devices().len())),
    harmless("DeviceList::find", |f| done(f.list.find("none").is_err())),
    harmless("DeviceList::library_unavailable", |f| done(f.list.library_unavailable().is_some())),
    harmless("DeviceList::probe", |_| done(DeviceList::probe())),
    harmless("DeviceList::unavailable", |f| done(f.list.unavailable().is_some())),
    refused("ProtectionDomain::alloc_local", |f| told(f.pd.alloc_local(BYTES))),
    refused("ProtectionDomain::alloc_region", |f| told(f.pd.alloc_region(BYTES, ALL))),
    refused("ProtectionDomain::alloc_window", |f| told(f.pd.alloc_window(BYTES))),
    refused("ProtectionDomain::add", |mut f| told(f.pd.add(&mut f.region))),
    refused("ProtectionDomain::add_local", |mut f| told(f.pd.add_local(&mut f.local))),
    harmless("ProtectionDomain::remote", |f| done(f.pd.remote(&f.region))),
    refused("ProtectionDomain::export", |f| told(f.pd.export(&f.private, ALL))),
    harmless("ProtectionDomain::export_pins", |f| done(f.pd.export_pins())),
    refused("ProtectionDomain::export_range", |f| told(f.pd.export_range(&f.private, 0..BYTES / 2, ALL))),
    refused("ProtectionDomain::export_ranges", |f| told(f.pd.export_ranges(&f.private, [0..1, 2..3], ALL))),
    harmless("ProtectionDomain::owns", |f| done(f.pd.owns(&f.region))),
    refused("ProtectionDomain::register", |f| told(f.pd.register(f.memory, ALL))),
    refused("ProtectionDomain::register", |f| told(f.pd.register(Memory::from(vec![0; BYTES]), ALL))),
    refused("ProtectionDomain::register_local", |f| told(f.pd.register_local(f.memory))),
    harmless("Worker::attach", |mut f| done(f.worker.attach(&f.private))),
    harmless("Worker::batch", |mut f| done(f.worker.batch(&f.left))),
    refused("Worker::consume_events", |mut f| told(f.worker.consume_events())),
    harmless("Worker::context", |f| done(f.worker.context().name().len())),
    harmless("Worker::cqe_reserved", |f| done(f.worker.cqe_reserved())),
    refused("Worker::create_queue_pair", |mut f| {
        told(f.worker.create_queue_pair(&f.pd, &QueuePairOptions::default()))
    }),
    harmless("Worker::detach", |mut f| done(f.worker.detach(f.attached))),
    harmless("Worker::event_fd", |f| done(f.worker.event_fd().as_raw_fd())),
    refused("Worker::fence", |mut f| told(f.worker.fence(f.left, soon()))),
    harmless("Worker::peer_slice", |mut f| {
        done(f.worker.peer_slice(&f.left, f.region.remote(), soon()).len())
    }),
    refused("Worker::peer_window", |mut f| told(f.worker.peer_window(&f.left, f.window.remote(), soon()))),
    refused("Worker::poll", |mut f| told(f.worker.poll())),
    refused("Worker::post", |mut f| told(f.worker.post(&f.left, Work::send(Segment::Empty)))),
    refused("Worker::post", |mut f| {
        let target = f.region.remote();
        told(f.worker.post(&f.left, Work::write(f.local, target)))
    }),
    refused("Worker::post_recv", |mut f| told(f.worker.post_recv(&f.right, f.local))),
    refused("Worker::request_notify", |mut f| told(f.worker.request_notify())),
    refused("Worker::wait", |mut f| told(f.worker.wait(soon()))),
    harmless("Batch::cancel", |mut f| {
        let target = f.region.remote();
        let mut batch = f.worker.batch(&f.left);
        let pushed = batch.push(Work::write(f.local, target)).is_ok();
        done((pushed, batch.cancel().len()))
    }),
    harmless("Batch::push", |mut f| done(f.worker.batch(&f.left).push(Work::send(f.local)).is_ok())),
    refused("Batch::submit", submit),
    refused("QueuePair::connect", |mut f| {
        told(f.init.connect(&mut f.worker, &f.endpoint, &f.path, &RetryOptions::default()))
    }),
    refused("QueuePair::endpoint", |f| told(f.init.endpoint(&f.worker, f.path.gid_index))),
    refused("QueuePair::init", |mut f| told(f.reset.init(&mut f.worker, &InitOptions::default()))),
    harmless("QueuePair::num", |f| done(f.left.num())),
    refused("QueuePair::peer_access", |mut f| told(f.left.peer_access(&mut f.worker))),
    refused("QueuePair::query_state", |mut f| told(f.left.query_state(&mut f.worker))),
    refused("QueuePair::ready_to_receive", |mut f| {
        told(f.init.ready_to_receive(&mut f.worker, &f.endpoint, &f.path))
    }),
    refused("QueuePair::ready_to_send", |mut f| {
        told(f.receiving.ready_to_send(&mut f.worker, &RetryOptions::default()))
    }),
    refused("loopback", |mut f| told(loopback(&mut f.worker, &f.pd))),
    harmless("interface_addresses", |_| done(interface_addresses())),
    harmless("fault::FaultPlan::add", |f| {
        f.faults.add(rdma_core::fault::Rule::new(rdma_core::fault::Fault::Drop));
        Outcome::Done
    }),
    harmless("fault::FaultPlan::clear", |f| {
        f.faults.clear();
        Outcome::Done
    }),
    harmless("fault::FaultPlan::counts", |f| done(f.faults.counts())),
    harmless("fault::FaultPlan::flap_port", |f| {
        f.faults.flap_port(Duration::from_secs(600));
        Outcome::Done
    }),
    harmless("fault::FaultPlan::kill", |f| {
        f.faults.kill();
        Outcome::Done
    }),
    harmless("fault::FaultPlan::resume", |f| {
        f.faults.resume();
        Outcome::Done
    }),
    harmless("fault::FaultPlan::seeded", |_| done(FaultPlan::seeded(3))),
    harmless("fault::FaultPlan::stop", |f| {
        f.faults.stop();
        Outcome::Done
    }),
    harmless("fault::FaultPlan::with", |f| {
        done(f.faults.with(rdma_core::fault::Rule::new(rdma_core::fault::Fault::Kill)))
    }),
];
