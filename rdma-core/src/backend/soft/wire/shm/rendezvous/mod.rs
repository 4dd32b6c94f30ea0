//! The rendezvous of the mapped wire: Unix sockets over which processes of one host exchange descriptors, under the
//! fabric's lock.
//!
//! The requester of a queue pair connects to the peer device's listener and sends [`Hello`]. The responder's end
//! waits until its queue pair is ready, and sends what the requester needs to run the responder in shared memory;
//! later it announces memories that come and go. No message of a queue pair takes this path. [`frame`] has the
//! encoding.
//!
//! Each frame is one packet, so no frame can be half received. Both ends check that the other runs as the same user,
//! and hold a pidfd of its process.

mod connection;
mod credentials;
mod descriptors;
mod frame;
#[cfg(any(fuzzing, test))]
pub(crate) mod fuzz;
mod host;
mod invited_writer;
mod listener;
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
pub(crate) use host::{AcceptedInvitation, Announcement, Change, Host, Invitation};
pub(crate) use unmapped_reason::UnmappedReason;

use super::super::log_throttle::LogThrottle;
use super::super::{DeviceRef, Hello, QpRef};
use connection::{NONE, Requester};
use credentials::Credentials;
use descriptors::Sent;
use frame::Frame;
use invited_writer::InvitedWriter;
use stranger::Stranger;

use crate::memory::Patch;
use crate::strangers::{Door, Place};

/// Time for a connection to identify itself, and for its queue pair to become ready. A requester whose connection was
/// closed comes again when it has something to send.
const HELLO_WAIT: Duration = Duration::from_secs(5);
/// Pause of accepting after the process ran out of descriptors: a listener that stays ready would keep the driver
/// busy.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Pause of sending after too many descriptors were in flight.
const CROWD_PAUSE: Duration = Duration::from_millis(5);
/// Longest wait of a connection for that. Afterwards its requester is told to take another wire, because its requests
/// wait meanwhile.
const CROWD_WAIT: Duration = Duration::from_millis(50);
/// Most mappings of peers' memory in this process: a quarter of those that a process may have by default
/// (vm.max_map_count is 65,530).
const MAPPINGS_MAX: usize = 1 << 14;
/// Connections accepted in one hold of the lock, so that others get it in between.
const ACCEPTS: usize = 16;

slotmap::new_key_type! {
    /// Names a connection or listener of the rendezvous.
    struct SocketKey;
}

/// Bit set in the epoll keys of this file, which tells them from those of TCP. It is a bit of a slot's index, which
/// no other key can have set: a process does not have that many descriptors.
const OWN_BIT: u64 = 1 << 31;
/// Bit set in the epoll key of a peer's pidfd, beside the key of its connection.
const PROCESS_BIT: u64 = 1 << 30;

#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    /// The device of a listener, or of the listener that accepted the connection.
    device: Option<DeviceRef>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Listener,
    Stranger(Stranger),
    Requester(Requester),
    InvitedWriter(InvitedWriter),
}

/// All connections and listeners of the rendezvous.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    epoll: Arc<OwnedFd>,
    credentials: Credentials,
    sockets: SlotMap<SocketKey, Socket>,
    requesters: SecondaryMap<QpRef, SocketKey>,
    writers: SecondaryMap<QpRef, SocketKey>,
    /// Connections that are not identified, or whose queue pair is not ready; oldest first.
    strangers: VecDeque<SocketKey>,
    /// A queue pair became ready since the waiting strangers were last tried.
    retry_waiting_due: bool,
    /// Time until which nothing is accepted, for lack of descriptors.
    accept_paused: Option<Instant>,
    /// Time at which frames held back by too many descriptors in flight are tried again.
    crowded: Option<Instant>,
    /// Limits the log lines that strangers can cause.
    throttle: LogThrottle,
}

impl Rendezvous {
    /// Creates a rendezvous without sockets. `epoll` is the driver's; the driver passes each ready key that
    /// [`is_own`](Self::is_own) to [`ready`](Self::ready).
    pub(crate) fn new(epoll: Arc<OwnedFd>) -> Self {
        Self {
            epoll,
            credentials: Credentials::new(),
            sockets: SlotMap::with_key(),
            requesters: SecondaryMap::new(),
            writers: SecondaryMap::new(),
            strangers: VecDeque::new(),
            retry_waiting_due: false,
            accept_paused: None,
            crowded: None,
            throttle: LogThrottle::default(),
        }
    }

    /// Whether an epoll key belongs to the rendezvous.
    pub(crate) fn is_own(key: u64) -> bool {
        key & OWN_BIT != 0
    }

    /// Listens for peers of `device`, under that GID.
    pub(crate) fn listen(&mut self, device: DeviceRef, gid: crate::Gid) -> io::Result<()> {
        let fd = listener::listen(gid)?;
        self.insert(Socket { fd, device: Some(device), kind: Kind::Listener }, EventFlags::IN)?;
        Ok(())
    }

    /// Closes the listener of `device` and the connections that it accepted.
    pub(crate) fn unlisten(&mut self, device: DeviceRef) {
        let theirs = self.sockets.iter().filter(|(_, socket)| socket.device == Some(device));
        let keys: Vec<_> = theirs.map(|(key, _)| key).collect();
        for key in keys {
            self.remove(key);
        }
    }

    /// Connects the requester of `qp` to its peer. The [`Host`] hears of the result.
    ///
    /// # Errors
    ///
    /// At once when no process that may share memory listens there; or when there is another wire and this process
    /// has only the descriptors left that it may need.
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
        // The hello goes last, because a peer may answer at once, and everything that reads the answer must be in
        // place.
        let socket = self.sockets.get(key).map(|socket| socket.fd.as_fd());
        let said = socket.map_or(Ok(Sent::Full), |fd| descriptors::send(fd, &Frame::Hello(*hello), &NONE));
        if !matches!(said, Ok(Sent::Whole)) {
            self.remove(key);
            return Err(said.err().unwrap_or(UnmappedReason::Busy));
        }
        if let Some(old) = self.requesters.insert(qp, key) {
            self.remove(old);
        }
        Ok(())
    }

    /// Whether the requester of `qp` has a connection.
    pub(crate) fn is_connected(&self, qp: QpRef) -> bool {
        self.requesters.contains_key(qp)
    }

    /// Reads what the peer of `qp`'s requester has sent by now.
    pub(crate) fn read_announcements(&mut self, now: Instant, qp: QpRef, host: &mut dyn Host) {
        if let Some(key) = self.requesters.get(qp) {
            self.serve(now, *key, host);
        }
    }

    /// Makes the peer of `qp`'s requester look into its mailbox.
    pub(crate) fn nudge(&mut self, qp: QpRef) {
        if let Some(socket) = self.requesters.get(qp).and_then(|key| self.sockets.get(*key)) {
            // A full socket holds nudges that were not read yet, so one more is not needed; epoll reports a broken
            // one.
            let _ = descriptors::send(socket.fd.as_fd(), &Frame::Nudge, &NONE);
        }
    }

    /// Notes that a queue pair has become ready: the next [`flush`](Self::flush) tries the waiting strangers again.
    pub(crate) fn retry_waiting(&mut self) {
        self.retry_waiting_due = !self.strangers.is_empty();
    }

    /// Closes both connections of `qp`, which is in ERR or gone.
    pub(crate) fn close(&mut self, qp: QpRef) {
        self.drop_requester(qp);
        self.drop_writer(qp);
    }

    /// Closes the connection of `qp`'s requester, which takes another wire.
    pub(crate) fn drop_requester(&mut self, qp: QpRef) {
        if let Some(key) = self.requesters.remove(qp) {
            self.remove(key);
        }
    }

    /// Closes the connection of the writer that the responder of `qp` has invited, which takes another wire.
    pub(crate) fn drop_writer(&mut self, qp: QpRef) {
        if let Some(key) = self.writers.remove(qp) {
            self.remove(key);
        }
    }

    /// Tries the waiting strangers again if a queue pair has become ready.
    pub(crate) fn flush(&mut self, now: Instant, host: &mut dyn Host) {
        if std::mem::take(&mut self.retry_waiting_due) {
            self.introduce_all(now, host);
        }
    }

    /// Serves the descriptor of that epoll key, which is ready.
    pub(crate) fn ready(&mut self, now: Instant, name: u64, host: &mut dyn Host) {
        let key = SocketKey::from(KeyData::from_ffi(name & !(OWN_BIT | PROCESS_BIT)));
        if name & PROCESS_BIT != 0 {
            // The peer may have sent something right before its end, which must be read first.
            self.serve(now, key, host);
            self.lose(now, key, UnmappedReason::Dead, host);
        } else {
            self.serve(now, key, host);
        }
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due.
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

    /// Adds a socket, and lets epoll watch it for `events`.
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
                crate::log::error!(%error, "a listener of the mapped wire cannot be watched any more");
            }
        }
    }

    /// Closes a socket and removes every reference to it.
    fn remove(&mut self, key: SocketKey) -> Option<Kind> {
        let Socket { fd, kind, .. } = self.sockets.remove(key)?;
        // A copy in a forked child would keep the socket open and watched, so closing the descriptor is not enough.
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
            Kind::InvitedWriter(InvitedWriter { qp, .. }) => {
                if self.writers.get(*qp) == Some(&key) {
                    self.writers.remove(*qp);
                }
            }
        }
        Some(kind)
    }
}

/// Returns the epoll key of a descriptor.
fn epoll_data(key: SocketKey, which: u64) -> EventData {
    EventData::new_u64(key.data().as_ffi() | OWN_BIT | which)
}
