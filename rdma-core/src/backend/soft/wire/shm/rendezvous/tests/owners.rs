//! Misbehaving owners: whatever is at the other end of a requester's connection, the requester reports the reason and
//! stays usable.

use super::*;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// An owner whose frames the test sends by hand.
pub(super) struct Owner {
    listener: OwnedFd,
    pub(super) gid: Gid,
}

impl Owner {
    pub(super) fn new() -> Self {
        let gid = fresh_gid();
        Self { listener: listener::listen(gid).unwrap(), gid }
    }

    /// Connects `a`, and returns the accepted connection, with the hello read.
    pub(super) fn meet(&self, a: &mut End) -> OwnedFd {
        a.connect(self.gid).unwrap();
        let socket = crate::backend::soft::wire::accepting::accept(self.listener.as_fd()).unwrap().unwrap();
        let hello = descriptors::receive(socket.as_fd()).unwrap().unwrap();
        assert_eq!(hello.frame, Frame::Hello(a.hello_to(self.gid)));
        socket
    }
}

pub(super) fn say(socket: &OwnedFd, packet: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    if !descriptors.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    sendmsg(socket, &[io::IoSlice::new(packet)], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
}

/// The reason that `a` reports about an owner that sends one packet and then nothing.
fn reason(said: &[u8], descriptors: &[BorrowedFd<'_>]) -> String {
    let (mut a, owner) = (End::new(), Owner::new());
    let socket = owner.meet(&mut a);
    say(&socket, said, descriptors);
    a.until(|a| !a.state.over.is_empty());
    assert!(a.state.invited.is_empty());
    assert!(!a.rendezvous.is_connected(a.qp));
    a.state.over.remove(0)
}

pub(super) fn welcome() -> [u8; frame::FRAME_BYTES] {
    Frame::Welcome { mailbox: 4096, keys: 4096 }.encode()
}

/// The descriptors of a valid invitation.
pub(super) fn good() -> [OwnedFd; 3] {
    let [mailbox, keys] = [1, 2].map(|_| sent(&Segment::create("test", 4096).unwrap()).0);
    [mailbox, keys, doorbell()]
}

pub(super) fn borrowed(descriptors: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    descriptors.iter().map(AsFd::as_fd).collect()
}

#[test]
fn no_descriptor() {
    assert_eq!(reason(&welcome(), &[]), "a frame came with 0 descriptors instead of 3");
    assert_eq!(reason(&welcome(), &borrowed(&good()[..2])), "a frame came with 2 descriptors instead of 3");
}

#[test]
fn too_many_descriptors() {
    let many: Vec<_> = (0..16).map(|_| doorbell()).collect();
    assert_eq!(reason(&welcome(), &borrowed(&many)), "a frame came with more descriptors than any frame has");
    assert_eq!(
        reason(&Frame::Forget { id: 1 }.encode(), &borrowed(&many[..1])),
        "a frame came with 1 descriptors instead of 0"
    );
}

#[test]
fn a_descriptor_that_is_no_memfd() {
    let [_, keys, doorbell] = good();
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert_eq!(
        reason(&welcome(), &[socket.as_fd(), keys.as_fd(), doorbell.as_fd()]),
        "mailbox that the peer handed over: the descriptor is not a memfd of ordinary pages"
    );
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    assert_eq!(
        reason(&welcome(), &[keys.as_fd(), file.as_fd(), doorbell.as_fd()]),
        "table of keys that the peer handed over: the descriptor is not a memfd of ordinary pages"
    );
}

#[test]
fn a_memfd_that_is_not_sealed() {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    let unsealed = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&unsealed, 4096).unwrap();
    let [mailbox, _, doorbell] = good();
    assert_eq!(
        reason(&welcome(), &[mailbox.as_fd(), unsealed.as_fd(), doorbell.as_fd()]),
        "table of keys that the peer handed over: the memfd is not sealed against shrinking and growing"
    );
}

#[test]
fn a_memfd_of_another_size_than_was_said() {
    let frame = Frame::Welcome { mailbox: 8192, keys: 4096 };
    assert_eq!(
        reason(&frame.encode(), &borrowed(&good())),
        "mailbox that the peer handed over: the memfd has 4096 bytes instead of the 8192 that the peer announced"
    );
}

#[test]
fn a_doorbell_that_blocks() {
    let [mailbox, keys, _] = good();
    let blocking = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    assert_eq!(
        reason(&welcome(), &[mailbox.as_fd(), keys.as_fd(), blocking.as_fd()]),
        "the peer's doorbell would block the thread that rings it"
    );
}

#[test]
fn a_doorbell_that_is_no_eventfd() {
    let [mailbox, keys, _] = good();
    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    assert_eq!(
        reason(&welcome(), &[mailbox.as_fd(), keys.as_fd(), socket.as_fd()]),
        "the peer's doorbell is no eventfd, or /proc, which tells so, is not mounted"
    );
}

#[test]
fn memory_that_cannot_be_mapped_ends_the_connection_and_says_why() {
    let (mut a, owner) = (End::new(), Owner::new());
    let socket = owner.meet(&mut a);
    say(&socket, &welcome(), &borrowed(&good()));
    a.until(|a| a.state.invited.len() == 1);
    let frozen = sent(&Segment::create("test", 4096).unwrap()).0;
    rustix::fs::fcntl_add_seals(&frozen, rustix::fs::SealFlags::WRITE).unwrap_err();
    say(&socket, &Frame::Memory { id: 1, len: 8192 }.encode(), &[frozen.as_fd()]);
    a.until(|a| a.state.over.len() == 1);
    assert_eq!(
        a.state.over[0],
        "memory that the peer handed over: the memfd has 4096 bytes instead of the 8192 that the peer announced"
    );
    assert!(a.state.mapped.is_empty());
}

#[test]
fn garbage() {
    assert_eq!(reason(&[0x5a; frame::FRAME_BYTES], &[]), "the first bytes are not those of this protocol");
    assert_eq!(
        reason(&[0x5a; 300], &[]),
        format!("a packet has {} bytes, and a frame 64", frame::FRAME_BYTES + 1)
    );
}

#[test]
fn half_a_frame_then_silence() {
    assert_eq!(reason(&welcome()[..20], &borrowed(&good())), "a packet has 20 bytes, and a frame 64");
}

#[test]
fn a_frame_that_comes_too_early_or_twice() {
    let unexpected = "the peer may not send this frame, or not at this point";
    assert_eq!(reason(&Frame::Forget { id: 1 }.encode(), &[]), unexpected);
    assert_eq!(reason(&Frame::Nudge.encode(), &[]), unexpected);
    let (mut a, owner) = (End::new(), Owner::new());
    let socket = owner.meet(&mut a);
    say(&socket, &welcome(), &borrowed(&good()));
    say(&socket, &welcome(), &borrowed(&good()));
    a.until(|a| a.state.over == [unexpected]);
    assert_eq!(a.state.invited.len(), 1);
}

#[test]
fn another_version_is_named_by_both() {
    let mut bytes = Frame::Forget { id: 1 }.encode();
    bytes[4] = 9;
    assert_eq!(
        reason(&bytes, &[]),
        "the frame has version 9 of the rendezvous, and this process speaks version 2"
    );
    let refused = Frame::Refused(Refusal::Version(9)).encode();
    assert_eq!(
        reason(&refused, &[]),
        "the peer refused: it speaks version 9 of the rendezvous, and this process version 2: run one version of the library"
    );
}

#[test]
fn every_refusal_is_told() {
    for refusal in [Refusal::User, Refusal::Pidfd, Refusal::Limit(24)] {
        let told = reason(&Frame::Refused(refusal).encode(), &[]);
        assert_eq!(told, format!("the peer refused: {refusal}"));
    }
}

#[test]
fn an_owner_that_vanishes() {
    let (mut a, owner) = (End::new(), Owner::new());
    drop(owner.meet(&mut a));
    a.until(|a| a.state.over == ["the peer closed the connection"]);
    // Closed before the listener has accepted.
    a.connect(owner.gid).unwrap();
    let gid = owner.gid;
    drop(owner);
    a.until(|a| a.state.over.len() == 2);
    assert!(matches!(a.connect(gid), Err(UnmappedReason::NoNeighbour)));
}

#[test]
fn the_end_of_its_process_is_told_though_a_child_holds_its_connection() {
    // Any process that ends will do: here it stands for the owner.
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    static CHILD: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(0);
    CHILD.store(child.id() as i32, std::sync::atomic::Ordering::Relaxed);
    let (mut a, owner) = (End::new(), Owner::new());
    a.rendezvous.credentials.pidfd = |_| {
        let pid = rustix::process::Pid::from_raw(CHILD.load(std::sync::atomic::Ordering::Relaxed));
        Ok(rustix::process::pidfd_open(pid.unwrap(), rustix::process::PidfdFlags::empty())?)
    };
    let socket = owner.meet(&mut a);
    say(&socket, &welcome(), &borrowed(&good()));
    a.until(|a| a.state.invited.len() == 1);
    // A frame that was sent right before the end is still read.
    say(&socket, &Frame::Forget { id: 5 }.encode(), &[]);
    child.kill().unwrap();
    child.wait().unwrap();
    a.until(|a| a.state.over == ["the peer's process has ended"]);
    assert_eq!(a.state.forgotten, [5]);
    assert!(!a.rendezvous.is_connected(a.qp));
}

#[test]
fn another_user_is_refused_by_the_requester() {
    let (mut a, owner) = (End::new(), Owner::new());
    a.rendezvous.credentials.uid ^= 1;
    let error = a.connect(owner.gid).unwrap_err().to_string();
    assert!(error.contains("run both as one user"), "{error}");
    assert!(!a.rendezvous.is_connected(a.qp));
}

#[test]
fn an_owner_that_cannot_be_watched_is_refused_by_the_requester() {
    let (mut a, owner) = (End::new(), Owner::new());
    a.rendezvous.credentials.pidfd = |_| Err(io::ErrorKind::Unsupported.into());
    let error = a.connect(owner.gid).unwrap_err().to_string();
    assert!(error.contains("cannot be watched (pidfd)") && error.contains("pidfd_open"), "{error}");
}

#[test]
fn a_listener_that_too_many_wait_at_is_busy() {
    let gid = fresh_gid();
    let crowded = listener::listen(gid).unwrap();
    rustix::net::listen(&crowded, 0).unwrap();
    let waiting: Vec<_> = (0..4).map(|_| listener::connect(gid)).collect();
    assert!(matches!(waiting.last(), Some(Err(UnmappedReason::Busy))), "{waiting:?}");
    assert!(crowded.as_raw_fd() >= 0);
}
