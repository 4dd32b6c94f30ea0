//! A queue pair that is not connected accepts receives, but no sends.

use rdma_core::{Init, QueuePair, ReadyToReceive, Segment, Work, Worker};

fn in_init(worker: &mut Worker, qp: &QueuePair<Init>) {
    let _ = worker.post(qp, Work::send(Segment::Empty));
}

fn in_rtr(worker: &mut Worker, qp: &QueuePair<ReadyToReceive>) {
    let _ = worker.batch(qp);
}

fn main() {}
