//! Every operation, between two devices of one process.

use std::time::Duration;

use rdma_core::{AckTimeout, CompletionStatus, RetryOptions, Segment, Work};

use super::end::{self, End, soon};

#[test]
fn writes_sends_and_reads_of_all_sizes_arrive() {
    let (mut a, mut b) = End::pair();
    assert_eq!(a.qp.peer_access(&mut a.worker).unwrap(), crate::ACCESS);
    let target = b.region(6 << 20);
    for (i, len) in [0, 1, 4096, 65_536, 1 << 20, (5 << 20) + 3].into_iter().enumerate() {
        let fill = i as u8 + 1;
        a.transfer(Work::write(a.filled(len, fill), target.remote().slice(0..len as u64).unwrap()));
        end::assert_holds(&target, 0..len, fill);

        let to = target.remote().slice(8..8).unwrap();
        b.worker.post(&b.qp, Work::recv(Segment::Empty)).unwrap();
        a.transfer(Work::write(Segment::Empty, to).with_imm(fill.into()));
        assert_eq!(b.worker.wait(soon()).unwrap().result.unwrap().imm, Some(fill.into()));

        let received = b.pd.alloc_local(len.max(1)).unwrap();
        b.worker.post(&b.qp, Work::recv(received)).unwrap();
        a.transfer(Work::send(a.filled(len, fill + 100)));
        let done = b.worker.wait(soon()).unwrap();
        assert_eq!(done.result.unwrap().bytes, len as u32);
        assert!(done.buffer.unwrap()[..len].iter().all(|byte| *byte == fill + 100));

        let from = target.remote().slice(0..len as u64).unwrap();
        let read = a.transfer(Work::read(a.filled(len, 0), from));
        assert!(read.is_none_or(|buffer| buffer.iter().all(|byte| *byte == fill)));
    }
}

#[test]
fn a_target_that_sleeps_is_written_all_the_same() {
    let (mut a, b) = End::pair();
    let target = b.region(1 << 20);
    for round in 1..20 {
        a.transfer(Work::write(a.filled(1 << 20, round), target.remote()));
        end::assert_holds(&target, 0..1 << 20, round);
    }
}

#[test]
fn a_window_of_writes_completes_in_order() {
    let (mut a, b) = End::pair();
    let (target, source) = (b.region(64 * 1000), a.region(64 * 1000));
    let source = a.worker.attach(&source);
    let mut posted = std::collections::VecDeque::new();
    for i in 0..2000_usize {
        if posted.len() == 100 {
            let done = a.worker.wait(soon()).unwrap();
            done.result.unwrap();
            assert_eq!(Some(done.id), posted.pop_front());
        }
        let at = i % 1000 * 64;
        let to = target.remote().slice(at as u64..at as u64 + 64).unwrap();
        posted.push_back(a.worker.post(&a.qp, Work::write(source.range(at, 64), to)).unwrap());
    }
    for id in posted {
        assert_eq!(a.worker.wait(soon()).unwrap().id, id);
    }
}

#[test]
fn a_wrong_key_is_told_and_both_ends_are_in_error() {
    let (mut a, mut b) = End::pair();
    let target = b.region(4096);
    let mut wrong = target.remote();
    wrong.rkey.0 ^= 1;
    b.worker.post(&b.qp, Work::recv(Segment::Empty)).unwrap();
    a.worker.post(&a.qp, Work::write(a.filled(4096, 1), wrong)).unwrap();
    assert_eq!(a.status(), CompletionStatus::REM_ACCESS_ERR);
    assert_eq!(b.status(), CompletionStatus::WR_FLUSH_ERR);
    end::assert_holds(&target, 0..4096, 0);
    let (mut a, _b) = a.again().join(b.again());
    a.transfer(Work::write(a.filled(4096, 2), target.remote()));
    end::assert_holds(&target, 0..4096, 2);
}

#[test]
fn a_send_without_a_receive_waits_for_one() {
    let (mut a, mut b) = End::pair();
    a.worker.post(&a.qp, Work::send(a.filled(100_000, 3))).unwrap();
    std::thread::sleep(Duration::from_millis(1));
    let buffer = b.pd.alloc_local(100_000).unwrap();
    b.worker.post(&b.qp, Work::recv(buffer)).unwrap();
    assert_eq!(a.status(), CompletionStatus::SUCCESS);
    assert!(b.worker.wait(soon()).unwrap().buffer.unwrap().iter().all(|byte| *byte == 3));
}

#[test]
fn a_peer_that_is_gone_is_told_when_the_retries_are_used_up() {
    let mut idle = End::new();
    idle.retry = RetryOptions { ack_timeout: AckTimeout::new(16), retry_cnt: 3, ..idle.retry };
    let (mut a, b) = idle.join(End::new());
    let target = b.region(4096);
    a.transfer(Work::write(a.filled(4096, 1), target.remote()));
    let remote = target.remote();
    drop((target, b));
    a.worker.post(&a.qp, Work::write(a.filled(4096, 1), remote)).unwrap();
    assert_eq!(a.status(), CompletionStatus::RETRY_EXC_ERR);
    let (mut a, b) = a.again().join(End::new());
    a.transfer(Work::write(a.filled(10, 1), b.region(10).remote()));
}
