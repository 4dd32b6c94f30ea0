//! Peers that unmap or close what they share, fork, or do nothing at all: this process survives, and its requests
//! end.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rdma_core::{
    Access, AckTimeout, CompletionStatus, Init, PeerAccess, Region, RemoteMemory, RetryOptions, Segment, Work,
};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::alone::alone;
use super::deaths::signal;
use super::end::{self, End, soon};
use super::processes::{self, BYTES, Peer};
use super::raw;

/// An end whose retries are used up within a second.
fn impatient() -> End<Init> {
    let mut idle = End::new();
    idle.retry = RetryOptions { ack_timeout: AckTimeout::new(15), retry_cnt: 3, ..idle.retry };
    idle
}

/// Starts that peer and connects; returns the number that the peer then sends as an immediate.
fn met(test: &str) -> (End, Region, Peer, u32) {
    let idle = impatient();
    let region = idle.pd.alloc_region(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let peer = Peer::start_as(test, &idle.endpoint(), region.remote());
    let mut end = idle.connect(&peer.endpoint);
    end.worker.post(&end.qp, Work::recv(Segment::Empty)).unwrap();
    end.transfer(Work::write(end.filled(BYTES, 1), peer.memory).with_imm(1));
    let said = end.worker.wait(soon()).unwrap().result.unwrap().imm.unwrap();
    assert_eq!(end.qp.peer_access(&mut end.worker).unwrap(), PeerAccess::Mapped);
    (end, region, peer, said)
}

/// The other side of `met`: the connection, the memory it may write, and its own memory.
fn meet() -> (End, RemoteMemory, Region) {
    let idle = impatient();
    let region = idle.pd.alloc_region(BYTES, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    print!("{}", processes::line(&idle.endpoint(), region.remote()));
    std::io::stdout().flush().unwrap();
    let mut said = String::new();
    std::io::stdin().read_line(&mut said).unwrap();
    let (endpoint, theirs) = processes::parse(&said).expect("the other end says where it is");
    let mut end = idle.connect(&endpoint);
    end.worker.post(&end.qp, Work::recv(Segment::Empty)).unwrap();
    assert_eq!(end.worker.wait(soon()).unwrap().result.unwrap().imm, Some(1));
    (end, theirs, region)
}

fn say(end: &mut End, to: RemoteMemory, number: u32) {
    end.transfer(Work::write(Segment::Empty, to.slice(0..0).unwrap()).with_imm(number));
}

/// Writes until a write fails, and returns its status. Every buffer comes back but that of the last write.
fn write_until_it_fails(end: &mut End, memory: RemoteMemory, most: Duration) -> Option<CompletionStatus> {
    let begun = Instant::now();
    let mut buffer = end.pd.alloc_local(BYTES).unwrap();
    buffer.fill(2);
    while begun.elapsed() < most {
        let posted = end.worker.post(&end.qp, Work::write(buffer, memory)).unwrap();
        let done = loop {
            // Requests without a completion of their own are completed by this one.
            let done = end.worker.wait(soon()).unwrap();
            if done.id == posted {
                break done;
            }
        };
        match done.result {
            Ok(_) => buffer = done.buffer.expect("the buffer is lost"),
            Err(failure) => return Some(failure.status),
        }
    }
    None
}

#[test]
#[ignore = "it is one end of two: the other tests start it"]
fn a_peer_that_unmaps_its_memory() {
    let (mut end, theirs, region) = meet();
    say(&mut end, theirs, 1);
    sleep(Duration::from_millis(5));
    let start = region.remote().addr as usize;
    raw::unmap(start..start + BYTES);
    end.worker.post(&end.qp, Work::recv(Segment::Empty)).unwrap();
    end.worker.wait(soon()).unwrap().result.unwrap();
    say(&mut end, theirs, 2);
    raw::linger();
}

/// The pages stay for as long as they are mapped here, whatever the peer unmaps.
#[test]
fn a_peer_that_unmaps_memory_is_written_to_and_answers() {
    let (mut end, _region, peer, _) = met("wayward::a_peer_that_unmaps_its_memory");
    assert_eq!(write_until_it_fails(&mut end, peer.memory, Duration::from_millis(100)), None);
    end.worker.post(&end.qp, Work::recv(Segment::Empty)).unwrap();
    end.worker.post(&end.qp, Work::send(Segment::Empty).unsignalled()).unwrap();
    assert_eq!(end.worker.wait(soon()).unwrap().result.unwrap().imm, Some(2));
    // Nor does the end of the peer raise a signal.
    signal(&peer, Signal::KILL);
    let failed = write_until_it_fails(&mut end, peer.memory, Duration::from_secs(30));
    assert_eq!(failed, Some(CompletionStatus::RETRY_EXC_ERR));
}

#[test]
#[ignore = "it is one end of two: the other tests start it"]
fn a_peer_that_unmaps_everything() {
    let (mut end, theirs, _region) = meet();
    say(&mut end, theirs, 1);
    sleep(Duration::from_millis(5));
    raw::shared_mappings().into_iter().for_each(raw::unmap);
    raw::linger();
}

/// The peer's own threads may crash of it or not; every request here ends.
#[test]
fn a_peer_that_unmaps_everything_that_it_shares_harms_itself_alone() {
    let (mut end, _region, peer, _) = met("wayward::a_peer_that_unmaps_everything");
    let failed = write_until_it_fails(&mut end, peer.memory, Duration::from_millis(100));
    assert!(matches!(failed, None | Some(CompletionStatus::RETRY_EXC_ERR)), "{failed:?}");
    if failed.is_none() {
        signal(&peer, Signal::KILL);
        let failed = write_until_it_fails(&mut end, peer.memory, Duration::from_secs(30));
        assert_eq!(failed, Some(CompletionStatus::RETRY_EXC_ERR));
    }
}

#[test]
#[ignore = "it is one end of two: the other tests start it"]
fn a_peer_that_closes_everything() {
    let (mut end, theirs, region) = meet();
    say(&mut end, theirs, 1);
    sleep(Duration::from_millis(5));
    drop((region, end));
    raw::linger();
}

#[test]
fn a_peer_that_closes_everything_and_lives_on_is_gone() {
    let (mut end, _region, mut peer, _) = met("wayward::a_peer_that_closes_everything");
    let failed = write_until_it_fails(&mut end, peer.memory, Duration::from_secs(30));
    let gone = [Some(CompletionStatus::RETRY_EXC_ERR), Some(CompletionStatus::REM_ACCESS_ERR)];
    assert!(gone.contains(&failed), "{failed:?}");
    assert!(peer.child.try_wait().unwrap().is_none(), "it has ended");
}

#[test]
#[ignore = "it is one end of two: the other tests start it"]
fn a_peer_that_forks() {
    let (mut end, theirs, _region) = meet();
    let child = raw::fork_a_holder();
    say(&mut end, theirs, child as u32);
    raw::linger();
}

/// Kills a process that is no child of this one.
struct Held(Pid);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

/// The child has copies of everything: sockets, memory, the doorbell.
#[test]
fn a_peer_whose_forked_child_outlives_it_is_gone() {
    let (mut end, _region, mut peer, child) = met("wayward::a_peer_that_forks");
    let child = Held(Pid::from_raw(child as i32).unwrap());
    peer.child.kill().unwrap();
    peer.child.wait().unwrap();
    let begun = Instant::now();
    let failed = write_until_it_fails(&mut end, peer.memory, Duration::from_secs(30));
    assert_eq!(failed, Some(CompletionStatus::RETRY_EXC_ERR));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    test_kill_process(child.0).expect("the child lives on");
}

/// The state of the peer's process as the kernel names it, and its CPU time.
fn state(peer: &Peer) -> (String, String) {
    let stat = std::fs::read_to_string(Path::new("/proc").join(peer.child.id().to_string()).join("stat"));
    let stat = stat.unwrap();
    let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    (fields[0].to_owned(), fields[11..13].join(" "))
}

#[test]
fn a_put_needs_nothing_of_a_target_that_is_stopped() {
    const LEN: usize = 1 << 20;
    let idle = End::new();
    let region = idle.pd.alloc_region(BYTES, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let peer = Peer::start(&idle.endpoint(), region.remote());
    let mut end = idle.connect(&peer.endpoint);
    end.transfer(Work::write(end.filled(BYTES, 1), peer.memory));
    signal(&peer, Signal::STOP);
    let deadline = soon();
    while state(&peer).0 != "T" {
        assert!(!deadline.expired(), "it is not stopped: {:?}", state(&peer));
        sleep(Duration::from_millis(1));
    }
    let before = state(&peer);
    end.worker
        .post(&end.qp, Work::write(end.filled(LEN, 2), peer.memory.slice(0..LEN as u64).unwrap()))
        .unwrap();
    assert_eq!(end.status(), CompletionStatus::SUCCESS);
    assert_eq!(state(&peer), before, "it was done by the target");
    signal(&peer, Signal::CONT);
    // The peer sends back the bytes that were written into it.
    end.worker.post(&end.qp, Work::recv(Segment::Empty)).unwrap();
    end.worker.post(&end.qp, Work::send(Segment::Empty).unsignalled()).unwrap();
    while end.worker.wait(soon()).unwrap().result.unwrap().imm.is_none() {}
    end::assert_holds(&region, 0..LEN, 2);
    end::assert_holds(&region, LEN..BYTES, 1);
}

#[test]
fn a_put_is_no_system_call() {
    static DONE: AtomicBool = AtomicBool::new(false);
    alone("wayward::a_put_is_no_system_call", || {
        let idle = End::new();
        let region = idle.pd.alloc_region(64, Access::LOCAL_WRITE).unwrap();
        let peer = Peer::start(&idle.endpoint(), region.remote());
        let mut end = idle.connect(&peer.endpoint);
        let mut buffer = end.transfer(Work::write(end.filled(BYTES, 1), peer.memory)).unwrap();
        // The thread cannot end after the filter is set; the process ends all the same.
        std::thread::spawn(move || {
            raw::forbid_system_calls();
            for _ in 0..20 {
                end.worker.post(&end.qp, Work::write(buffer, peer.memory)).unwrap();
                let done = loop {
                    if let Some(done) = end.worker.poll().unwrap() {
                        break done;
                    }
                };
                done.result.unwrap();
                buffer = done.buffer.unwrap();
            }
            DONE.store(true, Ordering::Release);
            loop {
                std::hint::spin_loop();
            }
        });
        let deadline = soon();
        while !DONE.load(Ordering::Acquire) {
            assert!(!deadline.expired(), "the writes do not end");
            sleep(Duration::from_millis(1));
        }
    });
}
