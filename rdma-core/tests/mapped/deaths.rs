//! A process that ends or stops at any moment of a write leaves nothing behind that could land later.

use std::io;
use std::time::{Duration, Instant};

use rdma_core::{Access, AckTimeout, CompletionStatus, Deadline, Region, RetryOptions, Segment, Work};
use rustix::process::{Pid, Signal, kill_process};

use super::end::{End, soon};
use super::processes::{BYTES, Peer};

const ROUNDS: u32 = 24;

/// A process that is at some point of writing all of the region.
fn writing(round: u32) -> (End, Region, Peer) {
    let idle = End::new();
    let region = idle.pd.alloc_region(BYTES, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let peer = Peer::start(&idle.endpoint(), region.remote());
    let mut end = idle.connect(&peer.endpoint);
    // What it writes is not what is there.
    region.copy_in(0, &vec![0xff; BYTES]).unwrap();
    end.worker.post(&end.qp, Work::recv(Segment::Empty)).unwrap();
    end.worker.post(&end.qp, Work::send(Segment::Empty)).unwrap();
    let (mut first, deadline) = ([0xff], soon());
    while first == [0xff] && !round.is_multiple_of(4) {
        assert!(!deadline.expired(), "nothing is written");
        region.copy_out(0, &mut first).unwrap();
    }
    std::thread::sleep(Duration::from_micros(100 * u64::from(round)));
    (end, region, peer)
}

fn signal(peer: &Peer, signal: Signal) {
    kill_process(Pid::from_child(&peer.child), signal).unwrap();
}

fn assert_nothing_lands(mut memory: rdma_core::Memory) {
    memory.fill(0xee);
    std::thread::sleep(Duration::from_millis(2));
    assert!(memory.iter().all(|byte| *byte == 0xee), "a byte of an old write");
}

#[test]
fn a_process_killed_in_the_midst_of_a_write_is_over_at_once() {
    for round in 0..ROUNDS {
        let (mut end, region, peer) = writing(round);
        signal(&peer, Signal::KILL);
        let begun = Instant::now();
        let memory = region.deregister().unwrap();
        assert_nothing_lands(memory);
        end.worker.fence(end.qp, Deadline::after(Duration::from_secs(30))).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    }
}

#[test]
fn a_process_stopped_in_the_midst_of_a_write_keeps_its_target_until_it_goes_on() {
    for round in 0..ROUNDS {
        let (_end, region, peer) = writing(round);
        signal(&peer, Signal::STOP);
        let refused = match region.deregister() {
            Ok(memory) => {
                // It was not at it.
                assert_nothing_lands(memory);
                continue;
            }
            Err(refused) => refused,
        };
        assert_eq!(refused.error.source.kind(), io::ErrorKind::ResourceBusy);
        assert!(refused.error.to_string().contains("stopped"), "{}", refused.error);
        signal(&peer, Signal::CONT);
        assert_nothing_lands(refused.object.deregister().unwrap());
    }
}

/// Its pages stay for as long as they are mapped here: no signal comes of it.
#[test]
fn a_target_that_vanishes_in_the_midst_of_a_write_is_silence() {
    for round in 0..ROUNDS / 2 {
        let mut idle = End::new();
        idle.retry = RetryOptions { ack_timeout: AckTimeout::new(15), retry_cnt: 3, ..idle.retry };
        let region = idle.pd.alloc_region(64, Access::LOCAL_WRITE).unwrap();
        let mut peer = Peer::start(&idle.endpoint(), region.remote());
        let mut end = idle.connect(&peer.endpoint);
        // It is mapped.
        end.transfer(Work::write(end.filled(BYTES, 1), peer.memory));
        let (memory, deadline) = (peer.memory, soon());
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(1000 * u64::from(round)));
            peer.child.kill().unwrap();
            peer.child.wait().unwrap();
        });
        let status = loop {
            assert!(!deadline.expired(), "writes to a process that has ended go on");
            end.worker.post(&end.qp, Work::write(end.filled(BYTES, 2), memory)).unwrap();
            match end.status() {
                CompletionStatus::SUCCESS => {}
                failed => break failed,
            }
        };
        killer.join().unwrap();
        assert_eq!(status, CompletionStatus::RETRY_EXC_ERR);
    }
}
