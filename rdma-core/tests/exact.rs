//! Deregistration and destruction are exact on the software device: once they return, a write that is under
//! way lands no further chunk.

use std::time::Duration;

use rdma_core::{
    Access, AckTimeout, Attached, CompletionStatus, Deadline, Device, Endpoint, InitOptions, PathOptions,
    ProtectionDomain, QueuePair, QueuePairOptions, ReadyToSend, Region, RemoteMemory, RetryOptions,
    SoftOptions, Wire, Work, Worker, WorkerOptions,
};

const WIRES: [Wire; 3] = [Wire::Local, Wire::Mapped, Wire::Tcp];
/// Bytes of a write: 8 MiB, many of the chunks (256 KiB) that a wire places in one hold of its lock.
const BYTES: usize = 8 << 20;
const ROUNDS: u8 = 12;

struct End {
    pd: ProtectionDomain,
    worker: Worker,
    qp: QueuePair<ReadyToSend>,
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(120))
}

fn pair(wire: Wire, retry: &RetryOptions) -> (End, End) {
    let start = || {
        let context = Device::soft(SoftOptions { wire, ..SoftOptions::default() }).open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let mut worker = context.worker(WorkerOptions::default()).unwrap();
        let qp = worker.create_queue_pair(&pd, &QueuePairOptions::default()).unwrap();
        let qp = qp.init(&mut worker, &InitOptions::default()).unwrap();
        let endpoint = qp.endpoint(&worker, 1).unwrap();
        (pd, worker, qp, endpoint)
    };
    let path = PathOptions { gid_index: 1, ..PathOptions::default() };
    let ((a_pd, mut a_worker, a_qp, a), (b_pd, mut b_worker, b_qp, b)) = (start(), start());
    let join = |qp: QueuePair<_>, worker: &mut Worker, peer: &Endpoint| {
        qp.connect(worker, peer, &path, retry).unwrap()
    };
    let (a_qp, b_qp) = (join(a_qp, &mut a_worker, &b), join(b_qp, &mut b_worker, &a));
    (End { pd: a_pd, worker: a_worker, qp: a_qp }, End { pd: b_pd, worker: b_worker, qp: b_qp })
}

/// Writes `fill` to all of `to` again and again until that fails; returns the status of the failure.
fn write_until_refused(mut end: End, to: RemoteMemory, fill: u8) -> CompletionStatus {
    let source = end.pd.alloc_region(BYTES, Access::LOCAL_WRITE).unwrap();
    source.copy_in(0, &vec![fill; BYTES]).unwrap();
    let source: Attached = end.worker.attach(&source);
    loop {
        end.worker.post(&end.qp, Work::write(source.range(0, BYTES), to)).unwrap();
        if let Err(failure) = end.worker.wait(soon()).unwrap().result {
            return failure.status;
        }
    }
}

/// Waits until the first byte is written, which is well before the last one.
fn wait_for_the_first(region: &Region, fill: u8) {
    let (mut first, deadline) = ([0], soon());
    while first != [fill] {
        assert!(!deadline.expired(), "nothing is written");
        region.copy_out(0, &mut first).unwrap();
        std::thread::yield_now();
    }
}

#[test]
fn a_write_under_way_ends_with_the_deregistration() {
    for wire in WIRES {
        for round in 1..=ROUNDS {
            let (left, right) = pair(wire, &RetryOptions::default());
            let target = right.pd.alloc_region(BYTES, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
            let to = target.remote();
            let writer = std::thread::spawn(move || write_until_refused(left, to, round));
            wait_for_the_first(&target, round);
            let mut memory = target.deregister().unwrap();
            memory.fill(0xff);
            let status = writer.join().unwrap();
            assert_eq!(status, CompletionStatus::REM_ACCESS_ERR, "{wire:?}");
            assert!(memory.iter().all(|byte| *byte == 0xff), "{wire:?}: a write landed afterwards");
        }
    }
}

#[test]
fn a_write_under_way_ends_with_the_fence() {
    let ack_timeout = AckTimeout::at_least(Duration::from_millis(250));
    let retry = RetryOptions { ack_timeout, retry_cnt: 1, ..RetryOptions::default() };
    for wire in WIRES {
        for round in 1..=ROUNDS / 3 {
            let (left, mut right) = pair(wire, &retry);
            let target = right.pd.alloc_region(BYTES, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
            let to = target.remote();
            let writer = std::thread::spawn(move || write_until_refused(left, to, round));
            wait_for_the_first(&target, round);
            right.worker.fence(right.qp, soon()).unwrap();
            target.copy_in(0, &vec![0xff; BYTES]).unwrap();
            let mut bytes = vec![0; BYTES];
            for _ in 0..5 {
                std::thread::sleep(Duration::from_millis(1));
                target.copy_out(0, &mut bytes).unwrap();
                assert!(bytes.iter().all(|byte| *byte == 0xff), "{wire:?}: a write landed afterwards");
            }
            assert_eq!(writer.join().unwrap(), CompletionStatus::RETRY_EXC_ERR, "{wire:?}");
        }
    }
}
