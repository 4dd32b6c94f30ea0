//! A fence consumes the queue pair.

use rdma_core::{Deadline, QueuePair, ReadyToSend, Segment, Work, Worker};

fn fence(worker: &mut Worker, qp: QueuePair<ReadyToSend>, deadline: Deadline) {
    let _ = worker.fence(qp, deadline);
    let _ = worker.post(&qp, Work::send(Segment::Empty));
}

fn main() {}
