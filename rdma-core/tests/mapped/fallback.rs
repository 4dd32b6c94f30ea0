//! Memory that cannot be mapped: the connection that comes upon it goes on over TCP, in order.

use rdma_core::error::ReachError;
use rdma_core::{Access, CompletionStatus, LocalBuf, Memory, PeerAccess, Region, Segment, Work};

use super::end::{self, End, soon};

const OPEN: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

fn adopted(end: &End, len: usize) -> Region {
    end.pd.register(Memory::adopt(vec![0; len]), OPEN).unwrap()
}

fn access(end: &mut End) -> PeerAccess {
    end.qp.peer_access(&mut end.worker).unwrap()
}

fn receive(end: &mut End) -> LocalBuf {
    let done = end.worker.wait(soon()).unwrap();
    done.result.unwrap();
    done.buffer.unwrap()
}

#[test]
fn memory_of_the_callers_is_written_and_read_over_tcp() {
    let (mut a, b) = End::pair();
    let mapped = b.region(4096);
    a.transfer(Work::write(a.filled(4096, 1), mapped.remote()));
    assert_eq!(access(&mut a), PeerAccess::Mapped);
    let foreign = adopted(&b, 3 << 20);
    a.transfer(Work::write(a.filled(3 << 20, 2), foreign.remote()));
    assert_eq!(access(&mut a), PeerAccess::Stream);
    end::assert_holds(&foreign, 0..3 << 20, 2);
    let read = a.transfer(Work::read(a.filled(4096, 0), foreign.remote().slice(0..4096).unwrap()));
    assert!(read.unwrap().iter().all(|byte| *byte == 2));
    a.transfer(Work::write(a.filled(4096, 3), mapped.remote()));
    end::assert_holds(&mapped, 0..4096, 3);
}

#[test]
fn a_key_of_ranges_is_written_over_tcp_and_its_memory_is_not_mapped_for_it() {
    let (mut a, b) = End::pair();
    // No other key of the region gives peers a right, so that nobody maps it.
    let region = b.pd.alloc_local(4096).unwrap().into_region().unwrap();
    let lent = b.pd.export_ranges(&region, [0..100, 200..300], OPEN).unwrap();
    let told = lent.remote();
    let apart = a.worker.peer_slice(&a.qp, told, soon()).copy_in(0, &[1]);
    assert!(matches!(apart, Err(ReachError::NotShared)), "{apart:?}");
    a.transfer(Work::write(a.filled(100, 1), told.slice(200..300).unwrap()));
    assert_eq!(access(&mut a), PeerAccess::Stream);
    end::assert_holds(&region, 200..300, 1);
    // The owner checks each request by itself.
    a.worker.post(&a.qp, Work::write(a.filled(101, 2), told.slice(0..101).unwrap())).unwrap();
    assert_eq!(a.status(), CompletionStatus::REM_ACCESS_ERR);
    assert_eq!(b.context.refused_requests().unwrap(), Some(1));
    lent.revoke(soon()).unwrap();
    end::assert_holds(&region, 0..200, 0);
    assert!(region.into_local().is_ok());
}

#[test]
fn receives_that_were_posted_before_are_taken_in_order_afterwards() {
    let (mut a, mut b) = End::pair();
    let foreign = adopted(&b, 64);
    for _ in 0..20 {
        let buffer = b.pd.alloc_local(8).unwrap();
        b.worker.post(&b.qp, Work::recv(buffer)).unwrap();
    }
    let mut posted = Vec::new();
    for round in 0..20 {
        posted.push(a.worker.post(&a.qp, Work::send(a.filled(8, round))).unwrap());
        if round == 9 {
            // Requests posted before this one are done by now, and later ones follow it over TCP.
            posted.push(a.worker.post(&a.qp, Work::write(a.filled(64, 0xaa), foreign.remote())).unwrap());
        }
    }
    for id in posted {
        let done = a.worker.wait(soon()).unwrap();
        done.result.unwrap();
        assert_eq!(done.id, id);
    }
    for round in 0..20 {
        assert_eq!(receive(&mut b)[..], [round; 8]);
    }
    end::assert_holds(&foreign, 0..64, 0xaa);
    // The other direction has not come upon such memory.
    assert_eq!([access(&mut a), access(&mut b)], [PeerAccess::Stream, PeerAccess::Mapped]);
}

#[test]
fn receives_into_memory_of_the_callers_are_filled_over_tcp() {
    let (mut a, mut b) = End::pair();
    let buffer = b.pd.register_local(Memory::adopt(vec![0; 64])).unwrap();
    b.worker.post(&b.qp, Work::recv(buffer)).unwrap();
    a.transfer(Work::send(a.filled(64, 5)));
    assert_eq!(receive(&mut b)[..], [5; 64]);
    assert_eq!(access(&mut a), PeerAccess::Stream);
    // A send that waits for its receive is not lost, either.
    a.worker.post(&a.qp, Work::send(a.filled(64, 6))).unwrap();
    let buffer = b.pd.alloc_local(64).unwrap();
    b.worker.post(&b.qp, Work::recv(buffer)).unwrap();
    assert_eq!(receive(&mut b)[..], [6; 64]);
}

#[test]
fn a_source_of_the_callers_needs_no_mapping() {
    let (mut a, b) = End::pair();
    let source = adopted(&a, 4096);
    source.copy_in(0, &[7; 4096]).unwrap();
    let target = b.region(4096);
    let attached = a.worker.attach(&source);
    a.transfer(Work::write(Segment::from(attached.range(0, 4096)), target.remote()));
    end::assert_holds(&target, 0..4096, 7);
    assert_eq!(access(&mut a), PeerAccess::Mapped);
}
