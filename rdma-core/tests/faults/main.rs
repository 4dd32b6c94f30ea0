//! Fault injection on every wire: each fault does what it says, is counted, and loses nothing that the protocol
//! promises to keep.

mod lab;
mod ports;
mod storm;
mod timers;

use std::time::Duration;

use lab::{End, WIRES, bytes, pair, patient, soon};
use rdma_core::fault::{Fault, Messages, Rule};
use rdma_core::{AckTimeout, CompletionStatus, RetryOptions, Segment, Work};

/// Writes `len` bytes of `fill` to a new region, waits for the completion, and returns the bytes of the region.
fn write(left: &mut End, right: &End, len: usize, fill: u8) -> Vec<u8> {
    let target = right.region(len);
    let mut source = left.pd.alloc_local(len).unwrap();
    source.fill(fill);
    left.worker.post(&left.qp, Work::write(source, target.remote())).unwrap();
    left.worker.wait(soon()).unwrap().result.unwrap();
    bytes(&target)
}

#[test]
fn a_lost_request_is_sent_again() {
    for wire in WIRES {
        let (mut left, right) = pair(wire, &patient());
        right.faults.add(Rule::new(Fault::Drop).on(Messages::Requests).times(2));
        assert_eq!(write(&mut left, &right, 100, 3), [3; 100]);
        assert_eq!(right.faults.counts().dropped, 2, "{wire:?}");
        assert!(right.faults.counts().messages >= 3);
    }
}

#[test]
fn a_lost_acknowledgement_does_not_deliver_twice() {
    for wire in WIRES {
        let (mut left, mut right) = pair(wire, &patient());
        left.faults.add(Rule::new(Fault::Drop).on(Messages::Replies).times(2));
        for _ in 0..3 {
            right.worker.post_recv(&right.qp, Segment::Empty).unwrap();
        }
        left.worker.post(&left.qp, Work::send(Segment::Empty).with_imm(1)).unwrap();
        left.worker.wait(soon()).unwrap().result.unwrap();
        left.worker.post(&left.qp, Work::send(Segment::Empty).with_imm(2)).unwrap();
        left.worker.wait(soon()).unwrap().result.unwrap();
        assert_eq!(left.faults.counts().dropped, 2, "{wire:?}");
        for imm in [1, 2] {
            assert_eq!(right.worker.wait(soon()).unwrap().result.unwrap().imm, Some(imm));
        }
        assert!(right.worker.poll().unwrap().is_none());
    }
}

#[test]
fn a_delayed_message_takes_its_time() {
    for wire in WIRES {
        let (mut left, right) = pair(wire, &patient());
        let delay = Duration::from_millis(80);
        right.faults.add(Rule::new(Fault::Delay(delay)).on(Messages::Requests).nth(1));
        let begin = std::time::Instant::now();
        assert_eq!(write(&mut left, &right, 1000, 4), [4; 1000]);
        assert!(begin.elapsed() >= delay, "{wire:?}: {:?}", begin.elapsed());
        assert_eq!(right.faults.counts().delayed, 1);
    }
}

#[test]
fn overtaken_requests_are_carried_out_in_order() {
    for wire in WIRES {
        let (mut left, mut right) = pair(wire, &patient());
        right.faults.add(Rule::new(Fault::Reorder).on(Messages::Requests).nth(2));
        for _ in 0..4 {
            right.worker.post_recv(&right.qp, right.pd.alloc_local(8).unwrap()).unwrap();
        }
        let mut batch = left.worker.batch(&left.qp);
        for imm in 0..4 {
            let mut payload = left.pd.alloc_local(8).unwrap();
            payload.fill(imm as u8);
            batch.push(Work::send(payload).with_imm(imm)).unwrap();
        }
        batch.submit().unwrap();
        for imm in 0..4 {
            let done = right.worker.wait(soon()).unwrap();
            assert_eq!(done.result.unwrap().imm, Some(imm), "{wire:?}");
            assert_eq!(done.buffer.unwrap()[..], [imm as u8; 8]);
        }
        assert_eq!(right.faults.counts().reordered, 1);
    }
}

#[test]
fn corruption_flips_one_byte_where_it_lands() {
    let flipped = |bytes: &[u8], fill: u8| {
        let wrong: Vec<_> = bytes.iter().filter(|byte| **byte != fill).collect();
        assert_eq!(wrong, [&!fill]);
    };
    for wire in WIRES {
        let (mut left, mut right) = pair(wire, &patient());
        for faults in [&left.faults, &right.faults] {
            faults.add(Rule::new(Fault::Corrupt));
        }
        flipped(&write(&mut left, &right, 3000, 5), 5);

        right.worker.post_recv(&right.qp, right.pd.alloc_local(100).unwrap()).unwrap();
        let mut payload = left.pd.alloc_local(100).unwrap();
        payload.fill(6);
        left.worker.post(&left.qp, Work::send(payload)).unwrap();
        left.worker.wait(soon()).unwrap().result.unwrap();
        flipped(&right.worker.wait(soon()).unwrap().buffer.unwrap(), 6);
        assert_eq!(right.faults.counts().corrupted, 2, "{wire:?}");

        let source = right.region(100);
        source.copy_in(0, &[7; 100]).unwrap();
        left.worker.post(&left.qp, Work::read(left.pd.alloc_local(100).unwrap(), source.remote())).unwrap();
        flipped(&left.worker.wait(soon()).unwrap().buffer.unwrap(), 7);
        assert_eq!(bytes(&source), [7; 100], "what is read stays as it is");
        assert_eq!(left.faults.counts().corrupted, 1);
    }
}

#[test]
fn a_receive_that_is_denied_costs_a_wait() {
    for wire in WIRES {
        let (mut left, mut right) = pair(wire, &patient());
        right.faults.add(Rule::new(Fault::Rnr).times(3));
        right.worker.post_recv(&right.qp, Segment::Empty).unwrap();
        left.worker.post(&left.qp, Work::send(Segment::Empty).with_imm(9)).unwrap();
        left.worker.wait(soon()).unwrap().result.unwrap();
        assert_eq!(right.worker.wait(soon()).unwrap().result.unwrap().imm, Some(9));
        assert_eq!(right.faults.counts().rnr, 3, "{wire:?}");
    }
}

#[test]
fn a_killed_peer_is_found_out() {
    for wire in WIRES {
        let ack_timeout = AckTimeout::at_least(Duration::from_millis(50));
        let (mut left, right) = pair(wire, &RetryOptions { ack_timeout, retry_cnt: 1, ..patient() });
        assert_eq!(write(&mut left, &right, 10, 1), [1; 10]);
        right.faults.kill();
        right.faults.resume();
        let target = right.region(10);
        let mut source = left.pd.alloc_local(10).unwrap();
        source.fill(9);
        left.worker.post(&left.qp, Work::write(source, target.remote())).unwrap();
        let done = left.worker.wait(soon()).unwrap();
        assert_eq!(done.result.unwrap_err().status, CompletionStatus::RETRY_EXC_ERR, "{wire:?}");
        assert_eq!(bytes(&target), [0; 10]);
        assert_eq!(right.faults.counts().killed, 1);
    }
}

#[test]
fn a_rule_kills_at_the_message_it_names() {
    for wire in WIRES {
        let ack_timeout = AckTimeout::at_least(Duration::from_millis(50));
        let (mut left, right) = pair(wire, &RetryOptions { ack_timeout, retry_cnt: 0, ..patient() });
        right.faults.add(Rule::new(Fault::Kill).on(Messages::Requests).nth(3));
        assert_eq!(write(&mut left, &right, 10, 1), [1; 10]);
        assert_eq!(write(&mut left, &right, 10, 2), [2; 10]);
        let target = right.region(10);
        let source = left.pd.alloc_local(10).unwrap();
        left.worker.post(&left.qp, Work::write(source, target.remote())).unwrap();
        let done = left.worker.wait(soon()).unwrap();
        assert_eq!(done.result.unwrap_err().status, CompletionStatus::RETRY_EXC_ERR, "{wire:?}");
    }
}

#[test]
fn a_stopped_peer_goes_on_where_it_was() {
    for wire in WIRES {
        let (mut left, right) = pair(wire, &patient());
        right.faults.stop();
        let target = right.region(10);
        let mut source = left.pd.alloc_local(10).unwrap();
        source.fill(8);
        left.worker.post(&left.qp, Work::write(source, target.remote())).unwrap();
        let early = left.worker.wait(rdma_core::Deadline::after(Duration::from_millis(50)));
        assert!(early.is_err(), "{wire:?}: a stopped peer answered");
        assert_eq!(bytes(&target), [0; 10]);
        right.faults.resume();
        left.worker.wait(soon()).unwrap().result.unwrap();
        assert_eq!(bytes(&target), [8; 10]);
        assert_eq!(right.faults.counts().stopped, 1);
    }
}

#[test]
fn a_refused_deregistration_leaves_the_region_registered() {
    for wire in WIRES {
        let (mut left, right) = pair(wire, &patient());
        right.faults.add(Rule::new(Fault::RefuseDeregistration).nth(1));
        let target = right.region(10);
        let remote = target.remote();
        let refused = target.deregister().unwrap_err();
        assert_eq!(refused.error.source.raw_os_error(), Some(16), "EBUSY");
        let mut source = left.pd.alloc_local(10).unwrap();
        source.fill(2);
        left.worker.post(&left.qp, Work::write(source, remote)).unwrap();
        left.worker.wait(soon()).unwrap().result.unwrap();
        assert_eq!(bytes(&refused.object), [2; 10]);
        let memory = refused.object.deregister().unwrap();
        assert_eq!(memory[..], [2; 10]);
        assert_eq!(right.faults.counts().deregistrations_refused, 1);
    }
}
