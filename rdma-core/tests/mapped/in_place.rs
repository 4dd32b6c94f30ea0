//! Memory of the caller whose pages are replaced by shareable ones: peers reach it as they reach the library's own.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use rdma_core::{Access, Memory, PeerAccess, Region, Segment, Sharing, SoftOptions, Unshared, Wire, Work};
use rustix::process::Signal;

use super::auto;
use super::deaths::{signal, writing_to};
use super::end::{self, End, soon};
use super::processes::{BYTES, Peer};

const OPEN: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

/// Whole pages within a `Vec`, which owns them.
pub struct Aligned {
    bytes: Vec<u8>,
    begin: usize,
    len: usize,
}

impl Aligned {
    pub fn new(len: usize, fill: u8) -> Self {
        let page = rustix::param::page_size();
        let mut bytes = vec![!fill; len + 2 * page];
        // The pages at either end are shared with the allocator.
        let begin = bytes.as_ptr().align_offset(page);
        bytes[begin..begin + len].fill(fill);
        Self { bytes, begin, len }
    }

    /// Checks that nothing around the pages has changed, and returns the bytes.
    fn checked(self, fill: u8) -> Vec<u8> {
        let (before, rest) = self.bytes.split_at(self.begin);
        let (inner, after) = rest.split_at(self.len);
        assert!(before.iter().chain(after).all(|byte| *byte == fill));
        inner.to_vec()
    }
}

impl AsMut<[u8]> for Aligned {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.begin..self.begin + self.len]
    }
}

pub fn shared(len: usize, fill: u8) -> Memory {
    // SAFETY: the pages are within a `Vec` that the memory owns, so nothing else uses them while they are replaced.
    unsafe { Memory::adopt(Aligned::new(len, fill)).share_in_place() }
}

/// Memory from raw pointers, and the owner of the bytes, which nobody reads meanwhile.
pub fn at_an_address(len: usize, fill: u8) -> (Arc<Aligned>, Memory) {
    let mut cache = Aligned::new(len, fill);
    let data = NonNull::from(&mut cache.as_mut()[0]);
    let cache = Arc::new(cache);
    // SAFETY: `cache` owns the bytes and is kept with the memory, so they stay; no reference to them exists.
    let memory = unsafe { Memory::from_raw_parts(data, len, Arc::clone(&cache) as _).share_in_place() };
    (cache, memory)
}

fn owner(region: Region) -> Aligned {
    region.deregister().unwrap().into_owner().unwrap_or_else(|_| panic!("of another type"))
}

#[test]
fn another_process_writes_what_a_vec_owns() {
    let idle = End::new();
    let region = idle.pd.register(shared(BYTES, 9), Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    assert_eq!(region.sharing(), Sharing::InPlace);
    end::assert_holds(&region, 0..BYTES, 9);
    let peer = Peer::start(&idle.endpoint(), region.remote());
    let mut end = idle.connect(&peer.endpoint);
    auto::there_and_back(&mut end, &region, &peer);
    drop(peer);
    assert!(owner(region).checked(!9).iter().all(|byte| *byte == 3));
}

#[test]
fn a_connection_stays_mapped_over_it() {
    let (mut a, mut b) = End::pair();
    let len = 4 * rustix::param::page_size();
    let region = b.pd.register(shared(len, 0), OPEN).unwrap();
    a.transfer(Work::write(a.filled(len, 1), region.remote()));
    end::assert_holds(&region, 0..len, 1);
    let read = a.transfer(Work::read(a.filled(len, 0), region.remote())).unwrap();
    assert!(read.iter().all(|byte| *byte == 1));
    let buffer = b.pd.register_local(shared(len, 0)).unwrap();
    assert_eq!(buffer.sharing(), Sharing::InPlace);
    b.worker.post(&b.qp, Work::recv(buffer)).unwrap();
    a.transfer(Work::send(a.filled(len, 5)));
    assert!(b.worker.wait(soon()).unwrap().buffer.unwrap().iter().all(|byte| *byte == 5));
    assert_eq!(a.qp.peer_access(&mut a.worker).unwrap(), PeerAccess::Mapped);
    // The memory may be registered several times before it is given back.
    let memory = region.deregister().unwrap();
    assert_eq!((memory.sharing(), memory[0]), (Sharing::InPlace, 1));
    let region = b.pd.register(memory, OPEN).unwrap();
    a.transfer(Work::write(a.filled(len, 2), region.remote()));
    assert!(owner(region).checked(!0).iter().all(|byte| *byte == 2));
    assert_eq!(a.qp.peer_access(&mut a.worker).unwrap(), PeerAccess::Mapped);
}

/// The pages under a stopped writer are replaced, and the memory is still put back whole.
#[test]
fn it_may_be_registered_again_and_put_back_after_pages_of_it_were_replaced() {
    for round in 1..8 {
        let (end, region, stopped) = writing_to(shared(BYTES, 9), round);
        signal(&stopped, Signal::STOP);
        let memory = region.deregister().unwrap();
        let idle = end.again();
        let region = idle.pd.register(memory, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        let peer = Peer::start(&idle.endpoint(), region.remote());
        let mut end = idle.connect(&peer.endpoint);
        end.transfer(Work::write(end.filled(BYTES, 7), peer.memory));
        end.worker.post(&end.qp, Work::recv(Segment::Empty)).unwrap();
        end.worker.post(&end.qp, Work::send(Segment::Empty).unsignalled()).unwrap();
        while end.worker.wait(soon()).unwrap().result.unwrap().imm.is_none() {}
        end::assert_holds(&region, 0..BYTES, 7);
        signal(&stopped, Signal::CONT);
        std::thread::sleep(Duration::from_millis(2));
        assert!(owner(region).checked(!9).iter().all(|byte| *byte == 7), "round {round}");
    }
}

#[test]
fn memory_at_an_address_has_its_bytes_after_the_region_is_gone() {
    let (mut a, b) = End::pair();
    let len = 2 * rustix::param::page_size();
    let (cache, memory) = at_an_address(len, 6);
    let region = b.pd.register(memory, OPEN).unwrap();
    assert_eq!(region.sharing(), Sharing::InPlace);
    a.transfer(Work::write(a.filled(len / 2, 7), region.remote().slice(0..len as u64 / 2).unwrap()));
    assert_eq!(a.qp.peer_access(&mut a.worker).unwrap(), PeerAccess::Mapped);
    drop(region);
    let bytes = Arc::into_inner(cache).unwrap().checked(!6);
    assert!(bytes[..len / 2].iter().all(|byte| *byte == 7) && bytes[len / 2..].iter().all(|byte| *byte == 6));
}

#[test]
fn what_cannot_be_shared_in_place_goes_over_tcp_and_says_why() {
    let (mut a, b) = End::pair();
    let page = rustix::param::page_size();
    let mut uneven = Aligned::new(2 * page, 0);
    (uneven.begin, uneven.len) = (uneven.begin + 1, page);
    // SAFETY: the memory owns the bytes and no reference to them exists, so nothing else uses them.
    let memory = unsafe { Memory::adopt(uneven).share_in_place() };
    assert_eq!(memory.sharing(), Sharing::Unshared(Unshared::NotNeeded));
    let region = b.pd.register(memory, OPEN).unwrap();
    assert_eq!(region.sharing(), Sharing::Unshared(Unshared::Unaligned { page }));
    a.transfer(Work::write(a.filled(page, 4), region.remote()));
    end::assert_holds(&region, 0..page, 4);
    assert_eq!(a.qp.peer_access(&mut a.worker).unwrap(), PeerAccess::Stream);
    owner(region);
}

#[test]
fn a_device_that_shares_nothing_leaves_the_pages_alone() {
    for wire in [Wire::Local, Wire::Tcp] {
        let end = End::of(SoftOptions { wire, ..SoftOptions::default() });
        let region = end.pd.register(shared(rustix::param::page_size(), 1), OPEN).unwrap();
        assert_eq!(region.sharing(), Sharing::Unshared(Unshared::NotNeeded), "{wire:?}");
        assert!(owner(region).checked(!1).iter().all(|byte| *byte == 1));
    }
    let end = End::new();
    let region = end.pd.register(Memory::adopt(Aligned::new(rustix::param::page_size(), 1)), OPEN).unwrap();
    assert_eq!(region.sharing(), Sharing::Unshared(Unshared::NotAllowed));
}
