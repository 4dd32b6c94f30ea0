//! The owner's side of a mailbox, with a writer that stands still at any chosen point.

mod revoke;

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::mm::ProtFlags;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::super::shm::READ_WRITE;
use super::super::shm::rendezvous::{Change, Host, Rendezvous, UnmappedReason};
use super::*;
use crate::backend::interface::{MappedAccess, MappedOp, MappedOutcome, RawRecv};
use crate::backend::soft::channel::Channel;
use crate::backend::soft::cq::{CompletionQueue, Hint};
use crate::backend::soft::engine::keys::{Domain, KeyTable};
use crate::backend::soft::event::Events;
use crate::backend::soft::fabric::{Command, DeviceState, Silence, State, find_peer};
use crate::backend::soft::gid;
use crate::backend::soft::options::Wire;
use crate::backend::soft::qp::{Carrier, Peer, QueuePair};
use crate::backend::soft::random::RandomPool;
use crate::backend::soft::shared_exports::SharedExports;
use crate::backend::soft::wire::{DeviceRef, Hello, QpRef};
use crate::error::ReachError;
use crate::memory::Mapping;
use crate::{Access, Deadline, Gid, PortState, QpNum, QueuePairOptions};

/// A deadline that no test reaches.
fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

const OWN_BIT: Gid = Gid([1; 16]);
const THEIRS: Gid = Gid([2; 16]);
const DOMAIN: Domain = Domain(1);

/// A device with one queue pair that answers.
struct Rig {
    state: State,
    device: DeviceRef,
    qp: QpRef,
}

impl Rig {
    fn new() -> Self {
        let mut state = State::default();
        let device = state.devices.insert(DeviceState {
            wire: Wire::Mapped,
            gids: Vec::new(),
            port: PortState::ACTIVE,
            port_returns: None,
            silence: Silence::No,
            faults: None,
            keys: KeyTable::default(),
            random: RandomPool::default(),
            qp_nums: HashMap::new(),
            domains: 0,
            refused: 0,
            exports: Some(SharedExports::new().unwrap()),
            unmapped_logged: HashSet::new(),
        });
        let channel = Channel::new().unwrap();
        let context = state.contexts.insert(Events::new(device, channel.clone()));
        let queue = CompletionQueue::new(context, 16, channel, Arc::new(Hint::default()));
        let cq = state.cqs.insert(queue);
        let mut qp = QueuePair::new(QpNum(7), (device, DOMAIN), (context, cq), &QueuePairOptions::default());
        qp.step(crate::QpState::INIT).unwrap();
        let peer = Peer { gid: THEIRS, qp_num: QpNum(8), found: None };
        qp.receive_from(OWN_BIT, peer, 5, Carrier::Mapped, 0).unwrap();
        let qp = state.qps.insert(qp);
        state.by_gid.insert(OWN_BIT, device);
        state.devices[device].qp_nums.insert(7, qp);
        Self { state, device, qp }
    }

    /// Admits a writer of this process.
    fn create_mailbox(&mut self) {
        self.state.create_mailbox(self.qp, process()).unwrap();
    }

    fn mailbox(&self) -> &Mailbox {
        &self.state.qps[self.qp].mapped.incoming.as_ref().unwrap().mailbox
    }

    /// Registers memory as `key`.
    fn register(&mut self, key: u32, memory: &Mapping, access: Access) {
        let (addr, len) = (memory.as_ptr().as_ptr() as u64, memory.len() as u64);
        let device = &mut self.state.devices[self.device];
        device.keys.insert(DOMAIN, addr, len, access, || Ok::<_, ()>(key)).unwrap();
        let registered = *device.keys.get(key).unwrap();
        device.exports.as_mut().unwrap().insert(
            key,
            registered,
            memory.backing().map(|backing| (backing, 0)),
        );
    }

    fn exports(&mut self) -> &mut SharedExports {
        self.state.devices[self.device].exports.as_mut().unwrap()
    }
}

fn process() -> Arc<OwnedFd> {
    Arc::new(pidfd_open(getpid(), PidfdFlags::empty()).unwrap())
}

fn hello() -> Hello {
    Hello { source_gid: THEIRS, source_qp: QpNum(8), destination_gid: OWN_BIT, destination_qp: QpNum(7) }
}

#[test]
fn a_mailbox_that_is_open_when_its_queue_pair_is_destroyed_answers_no_more() {
    let mut rig = Rig::new();
    rig.create_mailbox();
    let writer = rig.mailbox().writer();
    assert!(writer.may_enter());
    rig.state.destroy(rig.qp);
    assert!(!writer.may_enter());
    assert!(rig.state.orphans.is_empty());
}

#[test]
fn nobody_is_let_in_between_the_end_of_rights_and_the_end() {
    let mut rig = Rig::new();
    assert_eq!(rig.state.responder_for(&hello()), Some(rig.qp));
    let none = rig.state.revoke_qp(Instant::now(), rig.qp);
    assert!(none.wait(soon()));
    assert_eq!(rig.state.responder_for(&hello()), None);
}

#[test]
fn memory_of_receives_that_were_posted_before_is_told_to_the_peers_that_came_before() {
    let mut rig = Rig::new();
    let memory = Mapping::allocate(64).unwrap();
    let device = &mut rig.state.devices[rig.device];
    let lkey = device.keys.insert(DOMAIN, 0, 64, Access::LOCAL_WRITE, || Ok::<_, ()>(77)).unwrap();
    let registered = *device.keys.get(lkey).unwrap();
    let exports = device.exports.as_mut().unwrap();
    assert!(exports.insert(lkey, registered, memory.backing().map(|backing| (backing, 0))).is_none());
    rig.state.post_receive(rig.qp, RawRecv { wr_id: 1, addr: 0, len: 64, lkey }).unwrap();
    rig.create_mailbox();
    let told = |command: &Command| matches!(command, Command::Tell { change: Change::Announce(_), .. });
    assert_eq!(rig.state.commands.iter().filter(|command| told(command)).count(), 1);
}

#[test]
fn a_peer_that_comes_to_the_mapped_wire_is_parted_with_on_tcp() {
    let mut rig = Rig::new();
    rig.create_mailbox();
    let parts = |command: &Command| matches!(command, Command::CloseTcpInbound { qp } if *qp == rig.qp);
    assert!(rig.state.commands.iter().any(parts));
}

#[test]
fn a_device_that_is_stopped_or_down_is_silent_for_those_that_run_its_responders() {
    let mut rig = Rig::new();
    rig.create_mailbox();
    let writer = rig.mailbox().writer();
    rig.state.silence(rig.device, Silence::Stopped);
    assert!(!writer.may_enter());
    rig.state.silence(rig.device, Silence::No);
    assert!(writer.may_enter());
    let now = Instant::now();
    rig.state.flap(now, rig.device, Duration::from_millis(1));
    assert!(!writer.may_enter());
    rig.state.return_ports(now + Duration::from_millis(2));
    assert!(writer.may_enter());
    rig.state.silence(rig.device, Silence::Killed);
    assert!(!writer.may_enter());
    rig.state.silence(rig.device, Silence::No);
    assert!(!writer.may_enter(), "it came back from the dead");
}

#[test]
fn a_mailbox_of_a_device_that_is_silent_is_silent_from_the_beginning() {
    let mut rig = Rig::new();
    rig.state.silence(rig.device, Silence::Stopped);
    rig.create_mailbox();
    assert!(!rig.mailbox().writer().may_enter());
}

#[test]
fn only_memory_that_is_awaited_has_requests_sent_again() {
    let mut rig = Rig::new();
    rig.create_mailbox();
    let share = |segment: &Segment| {
        let (memfd, len) = (segment.memfd().unwrap(), segment.len() as u64);
        Segment::map(memfd, len, READ_WRITE).unwrap()
    };
    let mailbox = share(rig.mailbox().segment());
    let keys = rig.state.devices[rig.device].exports.as_ref().unwrap().table.segment().share().unwrap();
    let keys = Segment::map(std::os::fd::AsFd::as_fd(&keys.0), keys.1, ProtFlags::READ).unwrap();
    let responder = RemoteResponder::new(&Arc::new(mailbox), &Arc::new(keys)).unwrap();
    let doorbell = Channel::new().unwrap();
    let doorbell = std::os::fd::AsFd::as_fd(&doorbell).try_clone_to_owned().unwrap();
    let mapped = &mut rig.state.qps[rig.qp].mapped;
    mapped.outgoing = Some(Box::new(Outgoing { responder, doorbell }));
    mapped.awaited_memory = Some(3);
    for (told, awaits) in [(2, Some(3)), (3, None)] {
        let segment = Arc::new(Segment::create("test", 1).unwrap());
        rig.state.add_memory(Instant::now(), rig.qp, told, segment);
        assert_eq!(rig.state.qps[rig.qp].mapped.awaited_memory, awaits);
    }
    // A requester that waits for pages is told when they do not come, or when the memory goes.
    for (told, awaits) in [(2, Some(3)), (3, None)] {
        rig.state.qps[rig.qp].mapped.awaited_memory = Some(3);
        rig.state.resume_memory(Instant::now(), rig.qp, told);
        assert_eq!(rig.state.qps[rig.qp].mapped.awaited_memory, awaits);
    }
    rig.state.qps[rig.qp].mapped.awaited_memory = Some(3);
    // The replaced mapping is dropped later, without the lock.
    rig.state.forget_memory(Instant::now(), rig.qp, 3);
    assert_eq!((rig.state.discarded.memories.len(), rig.state.qps[rig.qp].mapped.awaited_memory), (1, None));
}

#[test]
#[expect(unsafe_code, reason = "looks at what the caller of a worker looks at")]
fn why_a_peer_is_not_met_is_told_once_and_it_is_met_again_when_it_is_asked_for_again() {
    let mut rig = Rig::new();
    let look = MappedAccess { remote_addr: 0, len: 8, rkey: 1, op: MappedOp::Probe };
    // SAFETY: the access names no local bytes, so there is nothing to be valid.
    let reached = |rig: &mut Rig| unsafe { rig.state.access_mapped_wire(rig.qp, &look) };
    let meets = |rig: &Rig| {
        rig.state.commands.iter().filter(|command| matches!(command, Command::FindPeer { .. })).count()
    };
    assert_eq!((reached(&mut rig).unwrap(), meets(&rig)), (MappedOutcome::NotYet, 1));
    rig.state.requester_closed(Instant::now(), rig.qp, UnmappedReason::OtherUser { own: 1, peer: 2 });
    let refused = reached(&mut rig).unwrap_err();
    assert!(
        matches!(&refused, ReachError::Unmapped { reason } if reason.contains("as one user")),
        "{refused}"
    );
    assert_eq!(meets(&rig), 1, "it is met again within one call");
    assert_eq!((reached(&mut rig).unwrap(), meets(&rig)), (MappedOutcome::NotYet, 2));
    // A peer that is only late, or busy.
    for reason in [UnmappedReason::Overdue, UnmappedReason::Busy] {
        rig.state.requester_closed(Instant::now(), rig.qp, reason);
        assert_eq!(reached(&mut rig).unwrap(), MappedOutcome::NotYet);
    }
}

#[test]
fn a_device_of_any_wire_goes_on_over_tcp_whatever_is_wrong() {
    for (wire, carrier) in [(Wire::Mapped, Carrier::Mapped), (Wire::Auto, Carrier::Tcp)] {
        let mut rig = Rig::new();
        rig.state.devices[rig.device].wire = wire;
        let gid = gid::routable("127.0.0.1:7".parse().unwrap(), 1);
        rig.state.qps[rig.qp].peer = Some(Peer { gid, qp_num: QpNum(8), found: None });
        rig.state.requester_closed(Instant::now(), rig.qp, UnmappedReason::OutOfDescriptors);
        assert_eq!(rig.state.qps[rig.qp].carrier, carrier, "{wire:?}");
        // A peer that has simply gone may come again.
        rig.state.qps[rig.qp].carrier = Carrier::Mapped;
        rig.state.requester_closed(Instant::now(), rig.qp, UnmappedReason::Closed);
        assert_eq!(rig.state.qps[rig.qp].carrier, Carrier::Mapped, "{wire:?}");
    }
}

#[test]
fn whoever_is_looked_for_and_cannot_be_met_is_reached_over_tcp() {
    let gid = gid::routable("127.0.0.1:7".parse().unwrap(), getrandom::u32().unwrap());
    for (wire, carrier) in [(Wire::Mapped, Carrier::Mapped), (Wire::Auto, Carrier::Tcp)] {
        let mut rig = Rig::new();
        rig.state.devices[rig.device].wire = wire;
        rig.state.qps[rig.qp].peer = Some(Peer { gid, qp_num: QpNum(8), found: None });
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
        let mut rendezvous = Rendezvous::new(epoll);
        let meet = |state: &mut State, rendezvous: &mut Rendezvous| {
            find_peer(Instant::now(), rendezvous, state, rig.qp);
            state.qps[rig.qp].carrier
        };
        // A peer that was there may come again.
        assert_eq!(meet(&mut rig.state, &mut rendezvous), Carrier::Mapped, "{wire:?}");
        rendezvous.listen(rig.device, gid).unwrap();
        rendezvous.run_as_another_user();
        assert_eq!(meet(&mut rig.state, &mut rendezvous), carrier, "{wire:?}");
    }
}
