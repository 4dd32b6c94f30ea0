//! Where processes of one host meet for the mapped wire: Unix sockets over which descriptors go, under the fabric's lock.
//!
//! The requester of a queue pair connects to the peer device's listener and says [`Hello`]. The responder's end waits until
//! its queue pair is ready, and hands over what the requester needs to run the responder by itself, in shared memory; later
//! it tells of memory that comes and goes. Nothing of a message goes this way. [`frame`] has the bytes.
//!
//! A connection says one of few things, each in one packet, so that none can be half said. Both ends see to it that the other
//! is of the same user, and hold a pidfd of its process.

mod connection;
mod credentials;
mod descriptors;
mod frame;
#[cfg(any(fuzzing, test))]
pub(crate) mod fuzz;
mod host;
mod listener;
mod responder;
mod stranger;
#[cfg(test)]
mod tests;
mod unmapped_reason;

use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::Shutdown;
use slotmap::{Key, KeyData, SecondaryMap, SlotMap};

pub(crate) use credentials::has_ended;
pub(crate) use frame::Refusal;
pub(crate) use host::{AcceptedInvitation, Announcement, Host, Invitation};
pub(crate) use unmapped_reason::UnmappedReason;

use super::super::log_throttle::LogThrottle;
use super::super::{DeviceRef, Hello, QpRef};
use connection::{NONE, Requester};
use credentials::Credentials;
use descriptors::Sent;
use frame::Frame;
use responder::Responder;
use stranger::Stranger;

use crate::memory::Patch;

/// How long a connection may take to say whose it is, and its queue pair to become ready.
const HELLO_WAIT: Duration = Duration::from_secs(5);
/// Connections that wait for that; beyond, the oldest is closed, and comes again when it has something to send.
const WAITING_MAX: usize = 256;
/// How long nothing is accepted after the process ran out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long nothing is sent that met too many descriptors under way.
const CROWD_PAUSE: Duration = Duration::from_millis(5);
/// How long a connection may have to wait for that before its requester is told to take another wire.
const CROWD_WAIT: Duration = Duration::from_millis(50);
/// Mappings of what peers hand over, in a process: a quarter of those that it has, as systems are set up.
const MAPPINGS_MAX: usize = 1 << 14;
/// Connections accepted in one hold of the lock.
const ACCEPTS: usize = 16;

slotmap::new_key_type! {
    /// Names a connection or listener here.
    struct SocketKey;
}

/// Set in what epoll calls the descriptors of this file. It is a bit of a slot's index, which no other key can have set:
/// there are not as many descriptors.
const OWN_BIT: u64 = 1 << 31;
/// Set in what epoll calls a peer's process, beside its connection's name.
const PROCESS_BIT: u64 = 1 << 30;

#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    /// Whose listener it is, or was accepted by.
    device: Option<DeviceRef>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Listener,
    Stranger(Stranger),
    Requester(Requester),
    Responder(Responder),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    epoll: Arc<OwnedFd>,
    credentials: Credentials,
    sockets: SlotMap<SocketKey, Socket>,
    requesters: SecondaryMap<QpRef, SocketKey>,
    responders: SecondaryMap<QpRef, SocketKey>,
    /// Oldest first.
    strangers: VecDeque<SocketKey>,
    /// A queue pair became ready since the waiting strangers asked.
    retry_waiting_due: bool,
    /// Until when listeners are not asked, for want of descriptors.
    accept_paused: Option<Instant>,
    /// Until when those wait that met too many descriptors under way.
    crowded: Option<Instant>,
    /// Bounds what strangers make it write to the log.
    throttle: LogThrottle,
}

impl Rendezvous {
    /// `epoll` is the driver's: what is ready there under a key that [`is_own`](Self::is_own), it says to
    /// [`ready`](Self::ready).
    pub(crate) fn new(epoll: Arc<OwnedFd>) -> Self {
        Self {
            epoll,
            credentials: Credentials::new(),
            sockets: SlotMap::with_key(),
            requesters: SecondaryMap::new(),
            responders: SecondaryMap::new(),
            strangers: VecDeque::new(),
            retry_waiting_due: false,
            accept_paused: None,
            crowded: None,
            throttle: LogThrottle::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn run_as_another_user(&mut self) {
        self.credentials.uid ^= 1;
    }

    /// Whether a descriptor of that name is one of these.
    pub(crate) fn is_own(key: u64) -> bool {
        key & OWN_BIT != 0
    }

    /// Lets processes of this host meet `device` by that GID.
    pub(crate) fn listen(&mut self, device: DeviceRef, gid: crate::Gid) -> io::Result<()> {
        let fd = listener::listen(gid)?;
        self.insert(Socket { fd, device: Some(device), kind: Kind::Listener }, EventFlags::IN)?;
        Ok(())
    }

    /// Closes that listener and the connections it accepted.
    pub(crate) fn unlisten(&mut self, device: DeviceRef) {
        let theirs = self.sockets.iter().filter(|(_, socket)| socket.device == Some(device));
        let keys: Vec<_> = theirs.map(|(key, _)| key).collect();
        for key in keys {
            self.remove(key);
        }
    }

    /// The requester of `qp` wants to write to the peer. What comes of it, the [`Host`] is told.
    ///
    /// # Errors
    ///
    /// At once when the peer is of no process that this one shares memory with; or when there is another wire, and no more
    /// descriptors than that may need.
    pub(crate) fn connect(
        &mut self,
        qp: QpRef,
        hello: &Hello,
        other_wire: bool,
    ) -> Result<(), UnmappedReason> {
        let fd = listener::connect(hello.destination_gid)?;
        if other_wire && descriptors::is_in_last_quarter(fd.as_fd()) {
            return Err(UnmappedReason::FewDescriptors);
        }
        let process = Arc::new(self.credentials.check(fd.as_fd())?);
        let kind = Kind::Requester(Requester {
            qp,
            process: Arc::clone(&process),
            invited: false,
            memories: HashSet::new(),
        });
        let key = self.insert(Socket { fd, device: None, kind }, EventFlags::IN)?;
        if let Err(error) = epoll::add(&self.epoll, &process, epoll_data(key, PROCESS_BIT), EventFlags::IN) {
            self.remove(key);
            return Err(io::Error::from(error).into());
        }
        // The last of it: whom the peer lets in is there.
        let socket = self.sockets.get(key).map(|socket| socket.fd.as_fd());
        let said = socket.map_or(Ok(Sent::Full), |fd| descriptors::send(fd, &Frame::Hello(*hello), &NONE));
        if !matches!(said, Ok(Sent::Whole)) {
            self.remove(key);
            return Err(said.err().unwrap_or(UnmappedReason::Busy));
        }
        if let Some(old) = self.requesters.insert(qp, key) {
            self.remove(old);
            self.requesters.insert(qp, key);
        }
        Ok(())
    }

    /// Whether the requester of `qp` has a connection.
    pub(crate) fn is_connected(&self, qp: QpRef) -> bool {
        self.requesters.contains_key(qp)
    }

    /// Takes what the peer of `qp`'s requester has said by now.
    pub(crate) fn read_announcements(&mut self, now: Instant, qp: QpRef, host: &mut dyn Host) {
        if let Some(key) = self.requesters.get(qp) {
            self.serve(now, *key, host);
        }
    }

    /// Tells the requesters that write to `device` of memory that its keys name now.
    pub(crate) fn announce(
        &mut self,
        now: Instant,
        device: DeviceRef,
        memory: &Announcement,
        host: &mut dyn Host,
    ) {
        self.tell(now, device, |responder| responder.announce(memory.clone()), host);
    }

    /// Tells them that no key names it any more.
    pub(crate) fn forget(&mut self, now: Instant, device: DeviceRef, id: u64, host: &mut dyn Host) {
        self.tell(now, device, |responder| responder.forget(id), host);
    }

    /// Tells those that were told of a memory that pages of it are others now.
    pub(crate) fn patch(
        &mut self,
        now: Instant,
        device: DeviceRef,
        (id, patches): (u64, &[Patch]),
        host: &mut dyn Host,
    ) {
        self.tell(now, device, |responder| responder.patch(id, patches), host);
    }

    /// Tells them that pages of a memory are not replaced after all.
    pub(crate) fn resume(&mut self, now: Instant, device: DeviceRef, id: u64, host: &mut dyn Host) {
        self.tell(now, device, |responder| responder.resume(id), host);
    }

    /// Has the peer of `qp`'s requester look into its mailbox.
    pub(crate) fn nudge(&mut self, qp: QpRef) {
        if let Some(socket) = self.requesters.get(qp).and_then(|key| self.sockets.get(*key)) {
            // A socket that is full holds nudges that were not looked at yet, and one that is broken is told by epoll.
            let _ = descriptors::send(socket.fd.as_fd(), &Frame::Nudge, &NONE);
        }
    }

    /// A queue pair has become ready: those that wait for it may come in, with the next [`flush`](Self::flush).
    pub(crate) fn retry_waiting(&mut self) {
        self.retry_waiting_due = !self.strangers.is_empty();
    }

    /// Closes both connections of `qp`: it is in ERR or gone.
    pub(crate) fn close(&mut self, qp: QpRef) {
        for key in [self.requesters.remove(qp), self.responders.remove(qp)].into_iter().flatten() {
            self.remove(key);
        }
    }

    /// Closes the connection of `qp`'s requester: it takes another wire.
    pub(crate) fn drop_requester(&mut self, qp: QpRef) {
        if let Some(key) = self.requesters.remove(qp) {
            self.remove(key);
        }
    }

    /// Parts from whom the responder of `qp` has invited: it is asked over another wire.
    pub(crate) fn drop_writer(&mut self, qp: QpRef) {
        if let Some(key) = self.responders.remove(qp) {
            self.remove(key);
        }
    }

    /// Asks again for those that wait, when a queue pair has become ready.
    pub(crate) fn flush(&mut self, now: Instant, host: &mut dyn Host) {
        if std::mem::take(&mut self.retry_waiting_due) {
            self.introduce_all(now, host);
        }
    }

    /// The descriptor of that name is ready.
    pub(crate) fn ready(&mut self, now: Instant, name: u64, host: &mut dyn Host) {
        let key = SocketKey::from(KeyData::from_ffi(name & !(OWN_BIT | PROCESS_BIT)));
        if name & PROCESS_BIT != 0 {
            // What it said before its end is looked at first.
            self.serve(now, key, host);
            self.lose(now, key, UnmappedReason::Dead, host);
        } else {
            self.serve(now, key, host);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let deadline = self.oldest_waiting().map(|(_, deadline)| deadline);
        [deadline, self.accept_paused, self.crowded].into_iter().flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant, host: &mut dyn Host) {
        if self.accept_paused.is_some_and(|until| until <= now) {
            self.accept_paused = None;
            self.watch_listeners(EventFlags::IN);
        }
        self.send_again(now, host);
        while let Some((key, deadline)) = self.oldest_waiting()
            && deadline <= now
        {
            self.lose(now, key, UnmappedReason::Overdue, host);
        }
    }

    fn oldest_waiting(&self) -> Option<(SocketKey, Instant)> {
        let key = *self.strangers.front()?;
        match &self.sockets.get(key)?.kind {
            Kind::Stranger(stranger) => Some((key, stranger.deadline)),
            _ => None,
        }
    }

    /// Keeps a socket, and has epoll watch it for `events`.
    fn insert(&mut self, socket: Socket, events: EventFlags) -> Result<SocketKey, io::Error> {
        let key = self.sockets.insert(socket);
        if let Err(error) = epoll::add(&self.epoll, &self.sockets[key].fd, epoll_data(key, 0), events) {
            self.sockets.remove(key);
            return Err(error.into());
        }
        Ok(key)
    }

    fn watch(&self, key: SocketKey, events: EventFlags) -> Result<(), UnmappedReason> {
        if let Some(socket) = self.sockets.get(key) {
            epoll::modify(&self.epoll, &socket.fd, epoll_data(key, 0), events).map_err(io::Error::from)?;
        }
        Ok(())
    }

    fn watch_listeners(&self, events: EventFlags) {
        for (key, socket) in &self.sockets {
            if matches!(socket.kind, Kind::Listener)
                && let Err(error) = self.watch(key, events)
            {
                tracing::error!(%error, "a listener of the mapped wire cannot be watched any more");
            }
        }
    }

    /// Closes a socket and forgets it wherever it is named.
    fn remove(&mut self, key: SocketKey) -> Option<Kind> {
        let Socket { fd, kind, .. } = self.sockets.remove(key)?;
        // A copy that a forked child holds would keep it watched, and open.
        let _ = epoll::delete(&self.epoll, &fd);
        let _ = rustix::net::shutdown(&fd, Shutdown::Both);
        match &kind {
            Kind::Listener => {}
            Kind::Stranger(_) => self.strangers.retain(|it| *it != key),
            Kind::Requester(Requester { qp, process, .. }) => {
                let _ = epoll::delete(&self.epoll, process);
                if self.requesters.get(*qp) == Some(&key) {
                    self.requesters.remove(*qp);
                }
            }
            Kind::Responder(Responder { qp, .. }) => {
                if self.responders.get(*qp) == Some(&key) {
                    self.responders.remove(*qp);
                }
            }
        }
        Some(kind)
    }
}

/// What epoll calls a descriptor.
fn epoll_data(key: SocketKey, which: u64) -> EventData {
    EventData::new_u64(key.data().as_ffi() | OWN_BIT | which)
}
