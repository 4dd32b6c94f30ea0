//! A process that ends or stops at any moment of a write: nothing lands later.

use std::time::{Duration, Instant};

use rdma_core::{
    Access, AckTimeout, CompletionStatus, Deadline, Init, Memory, Region, RetryOptions, Segment, Work,
    WorkerOptions,
};
use rustix::process::{Pid, Signal, kill_process};

use super::end::{self, End, soon};
use super::processes::{BYTES, Peer};

const ROUNDS: u32 = 24;

fn writing(round: u32) -> (End, Region, Peer) {
    writing_to(Memory::allocate(BYTES).unwrap(), round)
}

/// Starts a process that is at some point of writing all of the memory.
pub fn writing_to(memory: Memory, round: u32) -> (End, Region, Peer) {
    let idle = End::new();
    let region = idle.pd.register(memory, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let peer = Peer::start(&idle.endpoint(), region.remote());
    let mut end = idle.connect(&peer.endpoint);
    // Bytes that the process does not write.
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

pub fn signal(peer: &Peer, signal: Signal) {
    kill_process(Pid::from_child(&peer.child), signal).unwrap();
}

fn assert_nothing_lands(mut memory: Memory) {
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

/// Longest time for a deregistration or a fence while a peer is stopped.
const AT_ONCE: Duration = Duration::from_secs(5);

#[test]
fn a_process_stopped_in_the_midst_of_a_write_writes_nothing_that_is_seen() {
    for round in 0..ROUNDS {
        let (_end, region, peer) = writing(round);
        signal(&peer, Signal::STOP);
        let begun = Instant::now();
        let mut memory = region.deregister().unwrap();
        assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
        memory.fill(0xee);
        signal(&peer, Signal::CONT);
        assert_nothing_lands(memory);
    }
}

#[test]
fn a_region_outlives_the_queue_pair_of_a_process_that_is_stopped_and_takes_nothing_of_it() {
    for round in 0..ROUNDS {
        let (mut end, region, peer) = writing(round);
        signal(&peer, Signal::STOP);
        let begun = Instant::now();
        end.worker.fence(end.qp, Deadline::after(Duration::from_secs(30))).unwrap();
        assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
        region.copy_in(0, &vec![0xee; BYTES]).unwrap();
        signal(&peer, Signal::CONT);
        std::thread::sleep(Duration::from_millis(2));
        end::assert_holds(&region, 0..BYTES, 0xee);
        let memory = region.deregister().unwrap();
        assert!(memory.iter().all(|byte| *byte == 0xee));
    }
}

/// Stops a process in each of `times` writes; returns how often `end` took longer than it may.
fn late(times: u32, end: impl Fn(End, Region)) -> usize {
    let rounds = (0..times).map(|round| {
        let (own, region, peer) = writing(4 * round + 1);
        signal(&peer, Signal::STOP);
        let begun = Instant::now();
        end(own, region);
        let took = begun.elapsed();
        signal(&peer, Signal::CONT);
        took
    });
    rounds.filter(|took| *took > Duration::from_millis(150)).count()
}

/// A busy machine may delay some rounds, so a few late ones are allowed.
#[test]
fn beside_a_process_that_is_stopped_a_fence_keeps_its_deadline_and_a_drop_does_not_wait() {
    let fenced = late(8, |mut end, region| {
        end.worker.fence(end.qp, Deadline::after(Duration::from_millis(10))).unwrap();
        let memory = region.deregister().unwrap();
        assert_nothing_lands(memory);
    });
    assert!(fenced < 3, "{fenced} of 8");
    let dropped = late(8, |end, region| drop((end, region)));
    assert!(dropped < 3, "{dropped} of 8");
    let dropped = late(8, |end, region| drop((region, end)));
    assert!(dropped < 3, "{dropped} of 8");
}

/// Another queue pair of the same device and domain.
fn beside(end: &End) -> End<Init> {
    let mut worker = end.context.worker(WorkerOptions::default()).unwrap();
    let qp = end::queue_pair(&mut worker, &end.pd);
    End { qp, worker, pd: end.pd.clone(), context: end.context.clone(), retry: end.retry.clone() }
}

/// Two processes write one half of a region each, again and again. One of them is stopped and fenced; the other loses
/// nothing.
#[test]
fn other_writers_go_on_while_pages_are_replaced_and_lose_nothing() {
    for round in 0..ROUNDS / 2 {
        let (mut end, region, stopped) = writing(4 * round + 1);
        let (idle, whole) = (beside(&end), region.remote());
        let other = Peer::start(&idle.endpoint(), whole.slice(0..BYTES as u64 / 2).unwrap());
        let mut second = idle.connect(&other.endpoint);
        signal(&stopped, Signal::STOP);
        std::thread::scope(|scope| {
            let fenced = scope.spawn(|| {
                end.worker.fence(end.qp, Deadline::after(Duration::from_secs(30))).unwrap();
            });
            let mut writes = 0u8;
            while !fenced.is_finished() || writes < 3 {
                writes = writes % 100 + 1;
                // The peer sends back the bytes that were written into it.
                second.transfer(Work::write(second.filled(BYTES, writes), other.memory));
                second.worker.post(&second.qp, Work::recv(Segment::Empty)).unwrap();
                second.worker.post(&second.qp, Work::send(Segment::Empty).unsignalled()).unwrap();
                while second.worker.wait(soon()).unwrap().result.unwrap().imm.is_none() {}
                end::assert_holds(&region, 0..BYTES / 2, writes);
            }
        });
        signal(&stopped, Signal::CONT);
    }
}

/// The target's pages stay for as long as they are mapped here, so no signal comes of it.
#[test]
fn a_target_that_vanishes_in_the_midst_of_a_write_is_silence() {
    for round in 0..ROUNDS / 2 {
        let mut idle = End::new();
        idle.retry = RetryOptions { ack_timeout: AckTimeout::new(15), retry_cnt: 3, ..idle.retry };
        let region = idle.pd.alloc_region(64, Access::LOCAL_WRITE).unwrap();
        let mut peer = Peer::start(&idle.endpoint(), region.remote());
        let mut end = idle.connect(&peer.endpoint);
        // From now on the target is mapped.
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
