//! `Wire::Auto`: neighbours are mapped, and peers that cannot be mapped are reached over TCP.

use rdma_core::fault::FaultPlan;
use rdma_core::{Access, Endpoint, Init, PeerAccess, Region, RemoteMemory, Segment, SoftOptions, Wire, Work};

use super::end::{self, End, soon};
use super::processes::{self, BYTES, Peer};

pub fn auto(faults: Option<FaultPlan>) -> End<Init> {
    End::of(SoftOptions { wire: Wire::Auto, faults, ..SoftOptions::default() })
}

#[test]
#[ignore = "it is one end of two: the other tests start it"]
fn a_peer_of_any_wire() {
    processes::serve(auto(None));
}

#[test]
#[ignore = "it is one end of two: the other tests start it"]
fn a_peer_over_tcp() {
    processes::serve(End::of(SoftOptions { wire: Wire::Tcp, ..SoftOptions::default() }));
}

/// Exchanges bytes with another process, and returns how that process is reached.
pub fn exchange(idle: End<Init>, start: impl FnOnce(&Endpoint, RemoteMemory) -> Peer) -> PeerAccess {
    let region = idle.pd.alloc_region(BYTES, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let peer = start(&idle.endpoint(), region.remote());
    let mut end = idle.connect(&peer.endpoint);
    there_and_back(&mut end, &region, &peer);
    end.qp.peer_access(&mut end.worker).unwrap()
}

/// Exchanges bytes three times; the last ones are filled with 3.
pub fn there_and_back(end: &mut End, region: &Region, peer: &Peer) {
    for round in 1..4 {
        end.transfer(Work::write(end.filled(BYTES, round), peer.memory));
        end.worker.post(&end.qp, Work::recv(Segment::Empty)).unwrap();
        end.worker.post(&end.qp, Work::send(Segment::Empty).unsignalled()).unwrap();
        while end.worker.wait(soon()).unwrap().result.unwrap().imm.is_none() {}
        end::assert_holds(region, 0..BYTES, round);
    }
}

/// Returns a function that starts that peer.
pub fn to(test: &str) -> impl FnOnce(&Endpoint, RemoteMemory) -> Peer {
    move |ours, memory| Peer::start_as(test, ours, memory)
}

#[test]
fn a_neighbour_is_mapped() {
    assert_eq!(exchange(auto(None), to("auto::a_peer_of_any_wire")), PeerAccess::Mapped);
    assert_eq!(exchange(auto(None), to("processes::the_peer_of_the_other_tests")), PeerAccess::Mapped);
    assert_eq!(exchange(End::new(), to("auto::a_peer_of_any_wire")), PeerAccess::Mapped);
}

#[test]
fn a_neighbour_that_shares_no_memory_is_reached_over_tcp() {
    assert_eq!(exchange(auto(None), to("auto::a_peer_over_tcp")), PeerAccess::Stream);
}

#[test]
fn with_faults_messages_go_over_tcp() {
    let faults = Some(FaultPlan::seeded(1));
    assert_eq!(exchange(auto(faults), to("auto::a_peer_of_any_wire")), PeerAccess::Stream);
}
