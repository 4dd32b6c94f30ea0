//! Posting moves the buffer, so it cannot be read until its completion gives it back.

use rdma_core::{LocalBuf, QueuePair, ReadyToSend, Work, Worker};

fn post(worker: &mut Worker, qp: &QueuePair<ReadyToSend>, buffer: LocalBuf) -> u8 {
    let _ = worker.post(qp, Work::send(buffer));
    buffer[0]
}

fn main() {}
