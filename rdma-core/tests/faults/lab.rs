//! The lab: two software devices, each with a fault plan, and a connected queue pair on each.

use std::time::Duration;

use rdma_core::fault::FaultPlan;
use rdma_core::{
    Access, AckTimeout, Context, Deadline, Device, Init, InitOptions, PathOptions, ProtectionDomain,
    QueuePair, QueuePairOptions, ReadyToSend, Region, RetryOptions, RnrRetry, RnrTimer, SoftOptions, Wire,
    Worker, WorkerOptions,
};

/// The index of the routable GID, which TCP peers need.
const GID_INDEX: u32 = 1;

pub const WIRES: [Wire; 3] = [Wire::Local, Wire::Mapped, Wire::Tcp];

/// A deadline that only a hanging test misses.
pub fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(120))
}

/// An end of a connection: a device, its fault plan, and its queue pair.
pub struct End {
    pub faults: FaultPlan,
    pub context: Context,
    pub pd: ProtectionDomain,
    pub worker: Worker,
    pub qp: QueuePair<ReadyToSend>,
}

struct Start {
    faults: FaultPlan,
    context: Context,
    pd: ProtectionDomain,
    worker: Worker,
    qp: QueuePair<Init>,
}

/// Options whose retries outlast the faults of the tests, with timeouts short enough to wait for.
pub fn patient() -> RetryOptions {
    RetryOptions {
        ack_timeout: AckTimeout::at_least(Duration::from_millis(200)),
        retry_cnt: 7,
        rnr_retry: RnrRetry::Unlimited,
        ..RetryOptions::default()
    }
}

/// Makes two connected devices, without faults yet.
pub fn pair(wire: Wire, retry: &RetryOptions) -> (End, End) {
    pair_with(wire, retry, &QueuePairOptions::default())
}

/// Makes two connected devices with queues of this depth, without faults yet.
pub fn pair_with(wire: Wire, retry: &RetryOptions, queues: &QueuePairOptions) -> (End, End) {
    let (left, right) = (start(wire, queues), start(wire, queues));
    let endpoint = |end: &Start| end.qp.endpoint(&end.worker, GID_INDEX).unwrap();
    let (to_right, to_left) = (endpoint(&right), endpoint(&left));
    let path = PathOptions {
        gid_index: GID_INDEX,
        min_rnr_timer: RnrTimer::at_least(Duration::from_micros(100)),
        ..PathOptions::default()
    };
    let connect = |start: Start, peer| {
        let Start { faults, context, pd, mut worker, qp } = start;
        let qp = qp.connect(&mut worker, &peer, &path, retry).unwrap();
        End { faults, context, pd, worker, qp }
    };
    (connect(left, to_right), connect(right, to_left))
}

fn start(wire: Wire, queues: &QueuePairOptions) -> Start {
    let faults = FaultPlan::seeded(0x5eed);
    let options = SoftOptions { wire, faults: Some(faults.clone()), ..SoftOptions::default() };
    let context = Device::soft(options).open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut options = WorkerOptions::default();
    options.max_cqe += queues.max_send_wr + queues.max_recv_wr;
    let mut worker = context.worker(options).unwrap();
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
    let qp = worker.create_queue_pair(&pd, queues).unwrap();
    let qp = qp.init(&mut worker, &InitOptions { access, ..InitOptions::default() }).unwrap();
    Start { faults, context, pd, worker, qp }
}

impl End {
    pub fn region(&self, len: usize) -> Region {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        self.pd.alloc_region(len, access).unwrap()
    }
}

/// Returns all bytes of a region.
pub fn bytes(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.copy_out(0, &mut bytes).unwrap();
    bytes
}
