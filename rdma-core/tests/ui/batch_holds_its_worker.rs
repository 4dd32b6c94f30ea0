//! A batch borrows its worker, so the worker can be neither polled nor dropped before the batch is submitted.

use rdma_core::{QueuePair, ReadyToSend, Worker};

fn outlive(mut worker: Worker, qp: &QueuePair<ReadyToSend>) {
    let batch = worker.batch(qp);
    drop(worker);
    let _ = batch.submit();
}

fn main() {}
