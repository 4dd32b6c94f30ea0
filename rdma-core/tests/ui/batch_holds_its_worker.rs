//! A batch holds its worker: nothing can be polled, and the worker cannot go, before it is submitted.

use rdma_core::{QueuePair, ReadyToSend, Worker};

fn outlive(mut worker: Worker, qp: &QueuePair<ReadyToSend>) {
    let batch = worker.batch(qp);
    drop(worker);
    let _ = batch.submit();
}

fn main() {}
