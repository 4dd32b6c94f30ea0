//! The cases: each makes the library write one line.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rdma_core::fault::{Fault, FaultPlan, Rule};
use rdma_core::{
    Access, Context, Deadline, Device, Endpoint, Gid, Init, Memory, PathOptions, PortNum, RetryOptions,
    Segment, SoftOptions, Wire, Work, WorkerOptions, loopback,
};
use socket2::{Domain, SockAddr, Socket, Type};

use super::end::{End, soon};
use super::ground::{self, FREED, ONLY_LOCAL, Owner, device};
use super::raw;
use super::subscriber::is_reached;

const OPEN: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);
const LEN: usize = 60_000;

/// A device that refuses to deregister once.
fn refusing() -> Context {
    let faults = FaultPlan::seeded(1).with(Rule::new(Fault::RefuseDeregistration).times(1));
    let options = SoftOptions { wire: Wire::Local, faults: Some(faults), ..SoftOptions::default() };
    Device::soft(options).open().unwrap()
}

/// Memory whose key stands, because its revocation was refused: a peer's late write lands in it, and nowhere else.
fn leaks(export: bool) {
    let context = refusing();
    let pd = context.alloc_pd().unwrap();
    let mut worker = context.worker(WorkerOptions::default()).unwrap();
    let (left, _right) = loopback(&mut worker, &pd).unwrap();
    let memory = Memory::adopt(Owner(vec![1; LEN]));
    let told = if export {
        let region = pd.register_local(memory).unwrap().into_region().unwrap();
        let exported = pd.export(&region, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        let told = exported.remote();
        drop(region);
        drop(exported);
        told
    } else {
        let region = pd.register(memory, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        let told = region.remote();
        drop(region);
        told
    };
    assert_eq!(FREED.load(Ordering::SeqCst), 0, "memory that a peer has a key to was freed");
    let canaries = ground::canaries();
    let mut source = pd.alloc_local(LEN).unwrap();
    source.fill(0x55);
    worker.post(&left, Work::write(source, told)).unwrap();
    worker.wait(soon()).unwrap().result.unwrap();
    ground::assert_unchanged(&canaries);
}

/// Case d1. At 2f7198b a subscriber that panicked let this memory be freed, and the write landed in a vector.
pub fn leaks_an_export() {
    leaks(true);
}

pub fn leaks_a_region() {
    leaks(false);
}

pub fn adopts_memory() {
    let pd = device(Wire::Mapped).alloc_pd().unwrap();
    drop(pd.register(Memory::adopt(vec![0; LEN]), OPEN).unwrap());
}

pub fn shares_in_place() {
    let pd = device(Wire::Mapped).alloc_pd().unwrap();
    drop(pd.register(raw::shared(1 << 20), OPEN).unwrap());
}

/// Makes `mremap` to a given address fail. A limit on the address space would also fail allocations of the other
/// threads, and end the process.
pub fn leaks_shared_pages() {
    const FIXED: u32 = (libc::MREMAP_FIXED | libc::MREMAP_MAYMOVE) as u32;
    let memory = raw::shared(1 << 20);
    let pd = device(Wire::Mapped).alloc_pd().unwrap();
    let memory = pd.register(memory, OPEN).unwrap().deregister().unwrap();
    raw::refuse(libc::SYS_mremap, 3, FIXED..FIXED + 1);
    drop(memory);
}

/// Fences a queue pair of a completion queue that has overrun.
pub fn fences_after_an_overrun() {
    let context = device(Wire::Local);
    let pd = context.alloc_pd().unwrap();
    let mut worker = context.worker(WorkerOptions { max_cqe: 4, allow_overrun: true }).unwrap();
    let (left, right) = loopback(&mut worker, &pd).unwrap();
    for _ in 0..8 {
        worker.post_recv(&right, Segment::Empty).unwrap();
        worker.post(&left, Work::send(Segment::Empty)).unwrap();
    }
    worker.fence(left, soon()).map_err(|refused| refused.error).unwrap();
}

pub fn gives_up_with_another_worker() {
    let context = device(Wire::Local);
    let End { qp, worker: _own, retry, .. } = End::<Init>::within(context.clone());
    let mut other = context.worker(WorkerOptions::default()).unwrap();
    let peer = End::<Init>::within(context).endpoint();
    let path = PathOptions { gid_index: 1, ..PathOptions::default() };
    assert!(qp.connect(&mut other, &peer, &path, &retry).is_err());
}

pub fn drops_events() {
    let faults = FaultPlan::seeded(1);
    let options = SoftOptions { wire: Wire::Local, faults: Some(faults.clone()), ..SoftOptions::default() };
    let context = Device::soft(options).open().unwrap();
    let until = soon();
    while !is_reached() {
        assert!(!until.expired(), "no event was dropped");
        faults.flap_port(Duration::from_micros(100));
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(context);
}

fn routable(context: &Context) -> Gid {
    context.gids(PortNum(1)).unwrap()[1].gid
}

/// The address that is in the GID of a device.
fn listener(context: &Context) -> SocketAddrV4 {
    let gid = routable(context).0;
    let ip: [u8; 4] = gid[12..].try_into().unwrap();
    SocketAddrV4::new(Ipv4Addr::from(ip), u16::from_be_bytes([gid[6], gid[7]]))
}

pub fn tcp_stranger_leaves() {
    let context = device(Wire::Tcp);
    drop(TcpStream::connect(listener(&context)).unwrap());
    linger(context);
}

pub fn tcp_stranger_talks_garbage() {
    let context = device(Wire::Tcp);
    let mut stranger = TcpStream::connect(listener(&context)).unwrap();
    let _ = stranger.write_all(b"GET / HTTP/1.1\r\n\r\n");
    stranger.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let _ = stranger.read(&mut [0; 16]);
    linger(context);
}

/// Keeps a device open for as long as its thread may need for the case.
fn linger(context: Context) {
    std::mem::forget(context);
}

/// An endpoint like that of `end`, at another GID.
fn elsewhere(end: &End<Init>, change: impl FnOnce(&mut [u8; 16])) -> Endpoint {
    let endpoint = end.endpoint();
    let mut gid = endpoint.gid.0;
    change(&mut gid);
    Endpoint { gid: Gid(gid), ..endpoint }
}

pub fn tcp_peer_cannot_be_called() {
    let end = End::within(device(Wire::Tcp));
    // The broadcast address, which no stream reaches.
    let peer = elsewhere(&end, |gid| gid[12..].fill(0xff));
    let mut end = end.connect(&peer);
    end.worker.post(&end.qp, Work::send(Segment::Empty)).unwrap();
    end.worker.fence(end.qp, soon()).map_err(|refused| refused.error).unwrap();
}

/// A write into memory that no peer can map: the wire finds that out while posting, under its lock.
///
/// Case d5. At 2f7198b the post did not return when the subscriber asked a device.
pub fn writes_to_unmapped_memory() {
    let context = device(Wire::Mapped);
    let pd = context.alloc_pd().unwrap();
    let mut worker = context.worker(WorkerOptions::default()).unwrap();
    let (left, _right) = loopback(&mut worker, &pd).unwrap();
    let near = pd.alloc_region(64, OPEN).unwrap();
    worker.peer_slice(&left, near.remote(), soon()).copy_in(0, &[1]).unwrap();
    let far = pd.register(Memory::adopt(vec![0xaa; 64]), OPEN).unwrap();
    let mut buffer = pd.alloc_local(64).unwrap();
    buffer.fill(0x55);
    worker.post(&left, Work::write(buffer, far.remote())).unwrap();
    worker.wait(soon()).unwrap().result.unwrap();
    let mut bytes = [0; 64];
    far.copy_out(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0x55; 64], "the write goes over TCP");
}

/// A peer of the mapped wire that answers the greeting with garbage.
pub fn peer_answers_garbage() {
    let end = End::within(device(Wire::Mapped));
    let peer = elsewhere(&end, |gid| gid[8] ^= 1);
    let (listener, address) = neighbour(peer.gid);
    listener.bind(&address).unwrap();
    listener.listen(1).unwrap();
    let end = end.connect(&peer);
    let (answering, _) = listener.accept().unwrap();
    answering.send(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    std::mem::forget((answering, end));
}

/// The name at which a device of the mapped wire listens.
fn neighbour(gid: Gid) -> (Socket, SockAddr) {
    let name: String = gid.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
    (socket, SockAddr::unix(format!("\0rdma-core/{name}")).unwrap())
}

pub fn neighbour_leaves() {
    let context = device(Wire::Mapped);
    let (socket, address) = neighbour(routable(&context));
    socket.connect(&address).unwrap();
    drop(socket);
    linger(context);
}

pub fn neighbour_talks_garbage() {
    let context = device(Wire::Mapped);
    let (socket, address) = neighbour(routable(&context));
    socket.connect(&address).unwrap();
    socket.send(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    std::mem::forget(socket);
    linger(context);
}

/// Lets accepting fail, and then the pause of accepting, too.
fn cannot_be_watched(context: Context, socket: &Socket, address: &SockAddr) {
    ONLY_LOCAL.store(true, Ordering::Relaxed);
    raw::refuse(libc::SYS_epoll_ctl, 1, libc::EPOLL_CTL_MOD as u32..libc::EPOLL_CTL_MOD as u32 + 1);
    raw::with_descriptors(0, || {
        socket.connect(address).unwrap();
        let until = soon();
        while !is_reached() {
            assert!(!until.expired(), "the listener is watched still");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    linger(context);
}

pub fn tcp_listener_cannot_be_watched() {
    let context = device(Wire::Tcp);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let address = listener(&context).into();
    cannot_be_watched(context, &socket, &address);
}

pub fn mapped_listener_cannot_be_watched() {
    let context = device(Wire::Mapped);
    let (socket, address) = neighbour(routable(&context));
    cannot_be_watched(context, &socket, &address);
}

/// Opens and connects with few descriptors, one more each time, until the line is written.
fn with_few_descriptors(work: impl Fn() + std::panic::RefUnwindSafe) {
    for more in 0..64 {
        // The setup of the case may fail, as it may at each of its descriptors.
        let _ = raw::with_descriptors(more, || std::panic::catch_unwind(&work));
        if is_reached() {
            return;
        }
    }
}

pub fn device_is_not_published() {
    with_few_descriptors(|| drop(device(Wire::Auto)));
}

pub fn peer_cannot_be_invited() {
    with_few_descriptors(|| {
        let (a, b) = (End::<Init>::new(), End::<Init>::new());
        let ends = [a.endpoint(), b.endpoint()];
        let [mut a, _b] = [a.connect(&ends[1]), b.connect(&ends[0])];
        let _ = a.worker.post(&a.qp, Work::send(Segment::Empty));
        let _ = a.worker.wait(Deadline::after(Duration::from_millis(20)));
    });
}

/// Two devices that map each other, one of which then goes while the other sends.
pub fn mapped_peer_goes() {
    let retry = RetryOptions { retry_cnt: 1, ..RetryOptions::default() };
    let [mut a, mut b] = [End::<Init>::new(), End::<Init>::new()];
    (a.retry, b.retry) = (retry.clone(), retry);
    let (mut a, b) = a.join(b);
    let target = b.region(64);
    a.transfer(Work::write(a.filled(64, 1), target.remote()));
    drop(target);
    drop(b);
    let until = Deadline::after(Duration::from_secs(5));
    a.worker.post(&a.qp, Work::send(Segment::Empty)).unwrap();
    let done = a.worker.wait(until);
    assert!(done.is_err() || done.is_ok_and(|done| done.result.is_err()), "nobody answers");
}

/// Makes `munmap` fail for the memory of the case alone.
pub fn memory_cannot_be_unmapped() {
    const BYTES: usize = 3 << 20;
    let (mut a, b) = End::pair();
    let target = b.region(BYTES);
    a.transfer(Work::write(a.filled(64, 1), target.remote().slice(0..64).unwrap()));
    raw::refuse(libc::SYS_munmap, 1, BYTES as u32..BYTES as u32 + (1 << 20));
    drop(target);
    // The peer is told, and unmaps what it has.
    a.worker.post(&a.qp, Work::send(Segment::Empty)).unwrap();
    let _ = a.worker.wait(Deadline::after(Duration::from_millis(200)));
}
