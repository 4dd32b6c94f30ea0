//! Many faults at once: a network that loses, delays, reorders and denies receives, in both directions.

use std::time::Duration;

use super::lab::{bytes, pair, pair_with, patient, soon};
use super::{WIRES, lab};
use rdma_core::fault::{Fault, FaultPlan, Rule};
use rdma_core::{AckTimeout, QueuePairOptions, RetryOptions, Segment, Work};

const ROUNDS: u32 = 300;
const WINDOW: u32 = 16;
const BYTES: usize = 512;

fn storm(faults: &FaultPlan) {
    for fault in [Fault::Drop, Fault::Delay(Duration::from_millis(3)), Fault::Reorder, Fault::Rnr] {
        faults.add(Rule::new(fault).with_probability(0.03));
    }
}

/// Writes with immediates and sends under all faults: each must arrive once, in order.
#[test]
fn nothing_is_lost_twice_or_swapped() {
    for wire in WIRES {
        let ack_timeout = AckTimeout::at_least(Duration::from_millis(30));
        let (mut left, mut right) = pair(wire, &RetryOptions { ack_timeout, ..patient() });
        let target = right.region(BYTES * ROUNDS as usize);
        let source = left.region(BYTES * ROUNDS as usize);
        source.copy_in(0, &pattern(BYTES * ROUNDS as usize)).unwrap();
        let attached = left.worker.attach(&source);
        for faults in [&left.faults, &right.faults] {
            storm(faults);
        }
        for imm in 0..WINDOW {
            post_receive(&mut right, imm);
        }
        let (mut posted, mut done, mut received) = (0, 0, 0);
        let deadline = soon();
        while received < ROUNDS || done < ROUNDS {
            assert!(!deadline.expired(), "{wire:?}: {posted} posted, {done} done, {received} received");
            // Every outstanding request has a receive, so only the plan can deny one.
            while posted < ROUNDS && posted < received + WINDOW && posted < done + WINDOW {
                let at = posted as usize * BYTES;
                let range = attached.range(at, BYTES);
                let to = target.remote().slice(at as u64..(at + BYTES) as u64).unwrap();
                let work = if posted % 2 == 0 { Work::write(range, to) } else { Work::send(range) };
                left.worker.post(&left.qp, work.with_imm(posted)).unwrap();
                posted += 1;
            }
            while let Some(completion) = left.worker.poll().unwrap() {
                completion.result.unwrap();
                done += 1;
            }
            while let Some(completion) = right.worker.poll().unwrap() {
                let success = completion.result.unwrap();
                assert_eq!((success.imm, success.bytes), (Some(received), BYTES as u32));
                if received % 2 == 1 {
                    let at = received as usize * BYTES;
                    let landed = completion.buffer.unwrap();
                    target.copy_in(at, &landed).unwrap();
                }
                post_receive(&mut right, received + WINDOW);
                received += 1;
            }
        }
        assert_eq!(bytes(&target), pattern(BYTES * ROUNDS as usize), "{wire:?}");
        let counts = right.faults.counts();
        assert!(counts.dropped > 0 && counts.delayed > 0 && counts.reordered > 0, "{counts:?}");
    }
}

/// Each reordered reply releases further requests, whose replies are reordered in turn: this must not recurse on the
/// stack.
#[test]
fn a_deep_queue_whose_replies_are_swapped_completes() {
    const DEPTH: u32 = 16_384;
    for wire in WIRES {
        let queues = QueuePairOptions { max_send_wr: DEPTH, ..QueuePairOptions::default() };
        let (mut left, right) = pair_with(wire, &patient(), &queues);
        left.faults.add(Rule::new(Fault::Reorder).with_probability(0.5));
        let to = right.region(1).remote().slice(0..0).unwrap();
        let mut batch = left.worker.batch(&left.qp);
        for _ in 0..DEPTH {
            batch.push(Work::write(Segment::Empty, to)).unwrap();
        }
        batch.submit().unwrap();
        for _ in 0..DEPTH {
            left.worker.wait(soon()).unwrap().result.unwrap();
        }
    }
}

fn post_receive(end: &mut lab::End, imm: u32) {
    let segment = if imm % 2 == 1 { end.pd.alloc_local(BYTES).unwrap().into() } else { Segment::Empty };
    end.worker.post_recv(&end.qp, segment).unwrap();
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / BYTES * 31 + i * 7) as u8).collect()
}
