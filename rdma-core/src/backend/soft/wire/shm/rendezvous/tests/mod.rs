//! Two ends over real sockets, each with a scripted state that lists what happens.

mod limits;
mod owners;
mod patches;
mod writers;

use std::os::fd::AsRawFd;

use rustix::event::{EventfdFlags, Timespec, eventfd};

use super::super::{MapRefused, segment::Segment};
use super::*;
use crate::{Gid, QpNum};

const PATIENCE: Duration = Duration::from_secs(60);

/// A scripted state that records every call.
#[derive(Default)]
struct Scripted {
    qps: SlotMap<QpRef, ()>,
    /// The hellos that are accepted, and the queue pair of each.
    takes: Vec<(Hello, QpRef)>,
    refuses: Option<Refusal>,
    other_wire: bool,
    memories: Vec<Announcement>,
    writers: Vec<Arc<OwnedFd>>,
    invited: Vec<(QpRef, AcceptedInvitation)>,
    mapped: Vec<(u64, Arc<Segment>)>,
    resumed: Vec<u64>,
    forgotten: Vec<u64>,
    /// The mapping that another queue pair has.
    shares: Option<(u64, Arc<Segment>)>,
    nudges: usize,
    over: Vec<String>,
    left: Vec<String>,
}

fn doorbell() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

fn sent(segment: &Segment) -> (OwnedFd, u64) {
    segment.share().unwrap()
}

fn memory(id: u64) -> Announcement {
    let (memfd, len) = sent(&Segment::create("memory", 1).unwrap());
    Announcement { id, len, memfd: Arc::new(memfd), patches: Vec::new() }
}

impl Host for Scripted {
    fn has_other_wire(&self, _: DeviceRef) -> bool {
        self.other_wire
    }

    fn accept(&mut self, hello: &Hello) -> Option<QpRef> {
        self.takes.iter().find(|(it, _)| it == hello).map(|(_, qp)| *qp)
    }

    fn invite(&mut self, _: QpRef, writer: Arc<OwnedFd>) -> Result<Invitation, Refusal> {
        if let Some(refusal) = self.refuses {
            return Err(refusal);
        }
        self.writers.push(writer);
        let [mailbox, keys] = [1, 2].map(|bytes| sent(&Segment::create("test", bytes << 12).unwrap()));
        Ok(Invitation { mailbox, keys, doorbell: doorbell(), memories: self.memories.clone() })
    }

    fn invited(&mut self, _: Instant, qp: QpRef, invited: AcceptedInvitation) -> Result<(), UnmappedReason> {
        self.invited.push((qp, invited));
        Ok(())
    }

    fn existing_mapping(&mut self, _: QpRef, id: u64) -> Option<Arc<Segment>> {
        self.shares.as_ref().filter(|(shared, _)| *shared == id).map(|(_, segment)| Arc::clone(segment))
    }

    fn add_memory(&mut self, _: Instant, _: QpRef, id: u64, memory: Arc<Segment>) {
        self.mapped.push((id, memory));
    }

    fn patch_memory(&mut self, _: Instant, _: QpRef, id: u64, patch: &Patch) -> Result<(), MapRefused> {
        let Some((_, memory)) = self.mapped.iter().rev().find(|(mapped, _)| *mapped == id) else {
            return Ok(());
        };
        memory.patch(patch.memfd.as_fd(), patch.version, (patch.offset, patch.bytes))
    }

    fn resume_memory(&mut self, _: Instant, _: QpRef, id: u64) {
        self.resumed.push(id);
    }

    fn forget_memory(&mut self, _: Instant, _: QpRef, id: u64) {
        self.forgotten.push(id);
    }

    fn nudged(&mut self, _: Instant, _: QpRef) {
        self.nudges += 1;
    }

    fn requester_closed(&mut self, _: Instant, _: QpRef, reason: UnmappedReason) {
        self.over.push(reason.to_string());
    }

    fn responder_closed(&mut self, _: Instant, _: QpRef, reason: &UnmappedReason) {
        self.left.push(reason.to_string());
    }
}

impl Rendezvous {
    pub(crate) fn run_as_another_user(&mut self) {
        self.credentials.uid ^= 1;
    }
}

/// A process: a rendezvous and its scripted state.
struct End {
    rendezvous: Rendezvous,
    state: Scripted,
    gid: Gid,
    qp: QpRef,
    device: DeviceRef,
}

/// A GID that no other test has.
fn fresh_gid() -> Gid {
    let (drawn, mut gid) = (getrandom::u64().unwrap(), [0; 16]);
    gid[..8].copy_from_slice(&drawn.to_be_bytes());
    Gid(gid)
}

impl End {
    fn new() -> Self {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
        let mut rendezvous = Rendezvous::new(epoll);
        let device = SlotMap::<DeviceRef, ()>::with_key().insert(());
        let gid = fresh_gid();
        rendezvous.listen(device, gid).unwrap();
        let mut state = Scripted::default();
        let qp = state.qps.insert(());
        Self { rendezvous, state, gid, qp, device }
    }

    fn hello_to(&self, gid: Gid) -> Hello {
        Hello { source_gid: self.gid, source_qp: QpNum(7), destination_gid: gid, destination_qp: QpNum(8) }
    }

    /// Connects the requester to the device of `gid`.
    fn connect(&mut self, gid: Gid) -> Result<(), UnmappedReason> {
        let hello = self.hello_to(gid);
        self.rendezvous.connect(self.qp, &hello, self.state.other_wire)
    }

    /// Accepts the requester of `peer` from now on.
    fn take(&mut self, peer: &Self) {
        self.state.takes.push((peer.hello_to(self.gid), self.qp));
        self.rendezvous.retry_waiting();
    }

    /// Tells all writers of a change.
    fn tell(&mut self, change: Change) {
        self.rendezvous.tell(Instant::now(), self.device, &change, &mut self.state);
    }

    /// Runs one pass of a driver.
    fn turn(&mut self) {
        let (now, mut events) = (Instant::now(), Vec::with_capacity(16));
        let soon = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        epoll::wait(&self.rendezvous.epoll, rustix::buffer::spare_capacity(&mut events), Some(&soon))
            .unwrap();
        for event in events {
            assert!(Rendezvous::is_own(event.data.u64()));
            self.rendezvous.ready(now, event.data.u64(), &mut self.state);
        }
        self.rendezvous.flush(now, &mut self.state);
    }

    /// Turns until `done`; fails after a bounded wait instead of hanging.
    fn until(&mut self, mut done: impl FnMut(&Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            self.turn();
            assert!(
                begun.elapsed() < PATIENCE,
                "nothing more happens: {:?} {:?}",
                self.state.over,
                self.state.left
            );
        }
    }
}

fn until(a: &mut End, b: &mut End, mut done: impl FnMut(&End, &End) -> bool) {
    let begun = Instant::now();
    while !done(a, b) {
        a.turn();
        b.turn();
        let (over, left) = (&a.state.over, &b.state.left);
        assert!(begun.elapsed() < PATIENCE, "nothing more happens: {over:?} {left:?}");
    }
}

/// Two ends, of which `a` may write to `b`.
fn pair() -> (End, End) {
    let (mut a, mut b) = (End::new(), End::new());
    b.take(&a);
    a.connect(b.gid).unwrap();
    until(&mut a, &mut b, |a, _| a.state.invited.len() == 1);
    (a, b)
}

/// Checks that `b` admits a new requester, which then hears of new memory.
fn assert_works(b: &mut End) {
    let mut a = End::new();
    let qp = b.state.qps.insert(());
    b.state.takes.push((a.hello_to(b.gid), qp));
    a.connect(b.gid).unwrap();
    until(&mut a, b, |a, _| a.state.invited.len() == 1);
    b.tell(Change::Announce(memory(99)));
    until(&mut a, b, |a, _| a.state.mapped.iter().any(|(id, ..)| *id == 99));
    b.state.left.clear();
    drop(a);
    b.until(|b| b.state.left.len() == 1);
    b.state.left.clear();
}

#[test]
fn a_requester_is_given_all_that_it_needs_and_told_of_what_comes_and_goes() {
    let (mut a, mut b) = (End::new(), End::new());
    b.state.memories = vec![memory(1), memory(2)];
    a.connect(b.gid).unwrap();
    // The queue pair of `b` is not ready yet.
    until(&mut a, &mut b, |_, b| b.rendezvous.strangers.len() == 1);
    b.turn();
    assert!(a.state.invited.is_empty());
    b.take(&a);
    until(&mut a, &mut b, |a, _| a.state.mapped.len() == 2);
    let (qp, invited) = &a.state.invited[0];
    assert_eq!((*qp, invited.mailbox.len(), invited.keys.len()), (a.qp, 4096, 8192));
    assert!(invited.mailbox.is_writable() && !invited.keys.is_writable());
    assert!(!has_ended(b.state.writers[0].as_fd()));
    b.tell(Change::Announce(memory(3)));
    b.tell(Change::Forget(1));
    a.rendezvous.nudge(a.qp);
    until(&mut a, &mut b, |a, b| a.state.forgotten == [1] && b.state.nudges == 1);
    assert_eq!(a.state.mapped.iter().map(|(id, ..)| *id).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(b.rendezvous.strangers.is_empty() && a.state.over.is_empty() && b.state.left.is_empty());
}

#[test]
fn closing_at_either_end_is_told_at_the_other() {
    let (mut a, mut b) = pair();
    b.rendezvous.close(b.qp);
    until(&mut a, &mut b, |a, _| a.state.over == ["the peer closed the connection"]);
    assert!(!a.rendezvous.is_connected(a.qp));
    let (mut a, mut b) = pair();
    a.rendezvous.drop_requester(a.qp);
    until(&mut a, &mut b, |_, b| b.state.left == ["the peer closed the connection"]);
    assert!(a.state.over.is_empty(), "told of what was closed here");
}

#[test]
fn a_device_that_is_closed_is_nobodys_neighbour() {
    let (mut a, mut b) = pair();
    // Copies of the descriptors, as a forked child has them.
    let copies: Vec<_> = b.rendezvous.sockets.values().map(|it| rustix::io::dup(&it.fd).unwrap()).collect();
    b.rendezvous.unlisten(b.device);
    until(&mut a, &mut b, |a, _| a.state.over.len() == 1);
    assert!(matches!(a.connect(b.gid), Err(UnmappedReason::NoNeighbour)));
    assert!(b.rendezvous.sockets.is_empty() && copies.len() == 2);
}

#[test]
fn a_requester_that_comes_again_takes_the_place_of_the_one_before() {
    let (mut a, mut b) = pair();
    let hello = a.hello_to(b.gid);
    let mut again = End::new();
    again.rendezvous.connect(again.qp, &hello, false).unwrap();
    until(&mut again, &mut b, |again, _| again.state.invited.len() == 1);
    until(&mut a, &mut b, |a, _| a.state.over.len() == 1);
    assert_eq!(b.rendezvous.writers.len(), 1);
    // A connection that comes again from the same queue pair closes the older one.
    again.rendezvous.connect(again.qp, &hello, false).unwrap();
    until(&mut again, &mut b, |again, _| again.state.invited.len() == 2);
    assert_eq!(again.rendezvous.sockets.len(), 2, "the listener and one connection");
    assert!(again.rendezvous.is_connected(again.qp));
}

#[test]
fn what_comes_and_goes_before_a_peer_takes_it_is_not_told_and_takes_no_room() {
    let (mut a, mut b) = pair();
    // More notices than a socket takes at once.
    for id in 0..5000 {
        b.tell(Change::Announce(memory(id)));
        b.tell(Change::Forget(id));
    }
    let key = b.rendezvous.writers[b.qp];
    let Kind::InvitedWriter(writer) = &b.rendezvous.sockets[key].kind else { panic!("no writer") };
    assert!(format!("{writer:?}").matches("Forget").count() <= 2, "ends of what was never told of wait");
    b.tell(Change::Announce(memory(9999)));
    until(&mut a, &mut b, |a, _| a.state.mapped.last().is_some_and(|(id, ..)| *id == 9999));
    assert!(a.state.mapped.len() < 5000);
    assert_eq!(a.state.mapped.len(), a.state.forgotten.len() + 1);
}

#[test]
fn a_peer_that_does_not_listen_holds_up_nobody_and_hears_all_in_the_end() {
    let (mut a, mut b) = pair();
    for id in 0..1000 {
        b.tell(Change::Announce(memory(id)));
    }
    assert_works(&mut b);
    until(&mut a, &mut b, |a, _| a.state.mapped.len() == 1001);
}
