//! Software devices that reach each other over TCP, in one process and in two.
//!
//! The conformance suite checks the promises of a queue pair; these tests check what this wire could break.

mod end;
mod processes;
mod strangers;
mod traffic;

use std::time::Duration;

use end::End;
use rdma_core::{Access, AckTimeout, CompletionStatus, PeerAccess, RetryOptions, Wire, Work};

/// The wire under test. `mapped` includes some of these tests, too.
const WIRE: Wire = Wire::Tcp;
/// The access to a peer that this wire gives.
const ACCESS: PeerAccess = PeerAccess::Stream;

#[test]
fn a_region_deregistered_while_it_is_written_changes_no_more() {
    for round in 0..50 {
        let (mut a, b) = End::pair();
        let target = b.region(64 << 20);
        a.worker.post(&a.qp, Work::write(a.filled(64 << 20, 7), target.remote())).unwrap();
        std::thread::sleep(Duration::from_millis(round % 10));
        let memory = target.deregister().unwrap();
        let landed = memory.iter().filter(|byte| **byte == 7).count();
        let status = a.status();
        assert_eq!(memory.iter().filter(|byte| **byte == 7).count(), landed, "bytes landed afterwards");
        let (mut a, b) = a.again().join(b.again());
        a.transfer(Work::write(a.filled(10, 1), b.region(10).remote()));
        match status {
            CompletionStatus::SUCCESS => {}
            CompletionStatus::REM_ACCESS_ERR if landed == 0 => {}
            CompletionStatus::REM_ACCESS_ERR => return,
            other => panic!("{other}"),
        }
    }
    panic!("no write was under way when its target was deregistered");
}

/// The end that closes first keeps the connection for a minute (TIME_WAIT); that must not block its port.
#[test]
fn a_device_is_opened_again_at_its_port_while_old_connections_linger() {
    let free = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    for fill in 1..4 {
        let (mut a, mut b) = End::new().join(End::at(port));
        let (here, there) = (a.region(10), b.region(10));
        a.transfer(Work::write(a.filled(10, fill), there.remote()));
        b.transfer(Work::write(b.filled(10, fill), here.remote()));
        end::assert_holds(&there, 0..10, fill);
        // The listening end closes first, so its side of the connection lingers.
        drop((there, b));
    }
}

#[test]
fn reads_are_served_from_memory_that_is_still_there_alone() {
    let mut idle = End::new();
    idle.retry = RetryOptions { ack_timeout: AckTimeout::new(16), ..idle.retry };
    let (mut a, b) = idle.join(End::new());
    let source = b.pd.alloc_region(32 << 20, Access::LOCAL_WRITE | Access::REMOTE_READ).unwrap();
    a.worker.post(&a.qp, Work::read(a.filled(32 << 20, 0), source.remote())).unwrap();
    std::thread::sleep(Duration::from_millis(2));
    drop(source);
    // Either the answer came in time, or it was lost and the repeated request was refused.
    let status = a.status();
    assert!(status == CompletionStatus::SUCCESS || status == CompletionStatus::REM_ACCESS_ERR, "{status}");
}
