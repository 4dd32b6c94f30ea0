//! A queue pair in RESET accepts no request.

use rdma_core::{QueuePair, Reset, Segment, Worker};

fn in_reset(worker: &mut Worker, qp: &QueuePair<Reset>) {
    let _ = worker.post_recv(qp, Segment::Empty);
}

fn main() {}
