//! The TCP wire: the connections of all software devices of the process, under the fabric's lock.
//!
//! Two queue pairs need one connection. Whichever has a request first opens it, to the listener of the peer's device,
//! and the other uses it, too; each says a [`Hello`] before its first request. If both open one at the same time, the
//! queue pair with the greater name moves to the other's as soon as none of its requests is outstanding.
//!
//! A lost connection is silence: its queued frames are forgotten, the next transmission opens another connection, and
//! the requester's timer and retries decide. [`frame`] has the encoding and [`link`] moves the bytes; this file knows
//! which socket belongs to which queue pair.

mod accept;
mod frame;
#[cfg(any(fuzzing, test))]
pub(crate) mod fuzz;
mod held;
mod inflow;
mod link;
mod outflow;
mod socket;
mod stranger;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::Shutdown;
use slotmap::{Key, KeyData, SecondaryMap, SlotMap};

use self::frame::HELLO_BYTES;
pub(in super::super) use self::held::HeldAcks;
use self::link::{Link, LinkError};
use self::outflow::{Class, Outgoing};
use self::stranger::{Lingering, Stranger};
use super::log_throttle::LogThrottle;
use super::{DeviceRef, HOLD_BYTES_MAX, Hello, Payload, QpRef, Sink};
use crate::backend::soft::engine::message::{Reply, ReplyKind, Request};
use crate::backend::soft::gid;
use crate::strangers::{Door, Place};

/// Bytes received at a time that may hold several messages: 16 KiB, or up to 512 requests.
const STAGING_BYTES: usize = 16 << 10;

/// Bytes moved in one call. A receive and the flush after it are one hold of the lock, so each gets half, and room for
/// headers: otherwise messages whose payload is just that half would leave a few bytes behind.
const BUDGET: usize = HOLD_BYTES_MAX / 2 + (4 << 10);

/// Looks at the only connection before epoll is asked, which knows of the listener and of room to send, too.
const LOOKS_AT_ONE: u32 = 15;

/// Time for a connection to identify itself, and for its queue pair to become ready.
const HELLO_WAIT: Duration = Duration::from_secs(5);
/// Time for the peer to close a connection whose queue pair is gone.
const LINGER_WAIT: Duration = Duration::from_secs(2);
/// Most lingering connections. Beyond it the oldest is closed, so that ended queue pairs cannot use up this process's
/// descriptors.
const LINGERING_MAX: usize = 64;
/// Pause of accepting after the process ran out of descriptors: a listener that stays ready would keep the driver
/// busy.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

slotmap::new_key_type! {
    /// Names a socket to epoll. As a number it is at least 2^32.
    struct SocketKey;
}

#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    /// The device that listens, has accepted the connection or has opened it. It closes the socket when it closes.
    device: DeviceRef,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Listener,
    Stranger(Stranger),
    Link(Link),
    Lingering(Lingering),
}

/// The address and hello of a requester, kept to connect again after each loss.
#[derive(Debug)]
struct Requester {
    device: DeviceRef,
    address: SocketAddrV4,
    hello: [u8; HELLO_BYTES],
    /// This end leaves its own connection where there are two to the same peer.
    yields: bool,
    link: Option<SocketKey>,
    /// The sequence number of the last request.
    last: Option<u32>,
}

/// The sockets of all devices of the process, kept beside the state under the same lock.
///
/// A payload whose token became invalid before its first byte was sent is dropped with its message. A payload that
/// became invalid later is filled up with zeros if the peer will drop it; otherwise it ends the connection, because
/// the peer must not place the wrong bytes.
#[derive(Debug)]
pub(in super::super) struct Tcp {
    epoll: Arc<OwnedFd>,
    sockets: SlotMap<SocketKey, Socket>,
    requesters: SecondaryMap<QpRef, Requester>,
    /// The connection on which the responder of a queue pair was last asked.
    responders: SecondaryMap<QpRef, SocketKey>,
    /// Connections that are not identified, or whose queue pair is not ready; oldest first.
    strangers: VecDeque<SocketKey>,
    /// Connections whose queue pair is gone; oldest first.
    lingering: VecDeque<SocketKey>,
    /// Number of listeners among `sockets`.
    listeners: usize,
    /// Connections with frames queued since the last flush.
    dirty: Vec<SocketKey>,
    /// Connections with an acknowledgement that is held back.
    held: Vec<SocketKey>,
    held_acks: Arc<HeldAcks>,
    /// Looks at the only connection since epoll was asked.
    looks_at_one: u32,
    staging: Box<[u8]>,
    /// A queue pair became ready since the waiting strangers were last tried.
    retry_waiting_due: bool,
    /// Time until which nothing is accepted, for lack of descriptors.
    accept_paused: Option<Instant>,
    /// Time at which sockets were last served.
    served: Option<Instant>,
    /// Limits the log lines that strangers can cause.
    throttle: LogThrottle,
}

impl Tcp {
    /// Creates the wire without sockets. `epoll` is the driver's; the driver passes each ready key to
    /// [`ready`](Self::ready).
    pub(crate) fn new(epoll: Arc<OwnedFd>, held_acks: Arc<HeldAcks>) -> Self {
        Self {
            epoll,
            sockets: SlotMap::with_key(),
            requesters: SecondaryMap::new(),
            responders: SecondaryMap::new(),
            strangers: VecDeque::new(),
            lingering: VecDeque::with_capacity(LINGERING_MAX + 1),
            listeners: 0,
            dirty: Vec::new(),
            held: Vec::new(),
            held_acks,
            looks_at_one: 0,
            staging: vec![0; STAGING_BYTES].into(),
            retry_waiting_due: false,
            accept_paused: None,
            served: None,
            throttle: LogThrottle::default(),
        }
    }

    /// Adds a socket, and lets epoll watch it for `events`.
    fn insert(&mut self, socket: Socket, events: EventFlags) -> io::Result<SocketKey> {
        let key = self.sockets.insert(socket);
        if let Err(error) = epoll::add(&self.epoll, &self.sockets[key].fd, data(key), events) {
            self.sockets.remove(key);
            return Err(error.into());
        }
        Ok(key)
    }

    /// Closes a socket and removes every reference to it.
    fn remove(&mut self, key: SocketKey) {
        self.strangers.retain(|it| *it != key);
        self.lingering.retain(|it| *it != key);
        let Some(Socket { fd, kind, .. }) = self.sockets.remove(key) else { return };
        // A copy in a forked child would keep the socket open and watched, so closing the descriptor is not enough.
        let _ = epoll::delete(&self.epoll, &fd);
        let _ = rustix::net::shutdown(&fd, Shutdown::Both);
        let qp = match kind {
            Kind::Link(link) => link.qp,
            Kind::Listener => return self.listeners -= 1,
            Kind::Stranger(_) | Kind::Lingering(_) => return,
        };
        if let Some(requester) = self.requesters.get_mut(qp) {
            requester.link = requester.link.filter(|it| *it != key);
        }
        if self.responders.get(qp) == Some(&key) {
            self.responders.remove(qp);
        }
    }

    /// Ends a connection that broke, and logs why.
    fn lose(&mut self, key: SocketKey, why: &LinkError) {
        match why {
            LinkError::Closed | LinkError::Io(_) => crate::log::debug!(%why, "a connection is over"),
            _ => self.warn(why, "closing a connection"),
        }
        self.remove(key);
    }

    /// Writes a log line that a stranger has caused, unless there were many of late.
    fn warn(&mut self, why: &dyn std::error::Error, what: &str) {
        if let Some(left_out) = self.served.map_or(Some(0), |now| self.throttle.admit(now)) {
            crate::log::warn!(%why, left_out, "{what}");
        }
    }

    /// Returns the connection for the requests of `qp`, and opens one when there is none.
    fn open(&mut self, qp: QpRef) -> Option<SocketKey> {
        let requester = self.requesters.get(qp)?;
        let asked_on = self.responders.get(qp).copied();
        match (requester.link, asked_on) {
            (Some(own), Some(asked_on)) if own != asked_on && requester.yields && self.is_idle(qp, own) => {
                self.remove(own);
                self.greet(qp, asked_on);
            }
            (Some(_), _) => {}
            (None, Some(asked_on)) => self.greet(qp, asked_on),
            (None, None) => self.connect_link(qp),
        }
        self.requesters.get(qp)?.link
    }

    /// Whether the peer has acknowledged every request of `qp` that went over this connection.
    fn is_idle(&self, qp: QpRef, key: SocketKey) -> bool {
        let Some(Socket { kind: Kind::Link(link), .. }) = self.sockets.get(key) else { return true };
        let last = self.requesters.get(qp).and_then(|requester| requester.last);
        last == link.inflow.acknowledged() && link.outflow.is_empty()
    }

    /// Takes a connection for the requests of `qp`, and says the hello on it.
    fn greet(&mut self, qp: QpRef, key: SocketKey) {
        if let Some(requester) = self.requesters.get_mut(qp) {
            requester.link = Some(key);
            let hello = Outgoing::new(&requester.hello, None, Class::Hello);
            self.enqueue(key, hello);
        }
    }

    /// Opens a connection for the requests of `qp`. Errors show as silence.
    fn connect_link(&mut self, qp: QpRef) {
        let Some(requester) = self.requesters.get(qp) else { return };
        let device = requester.device;
        let opened = socket::connect(requester.address).and_then(|fd| {
            let kind = Kind::Link(Link::new(qp, false));
            self.insert(Socket { fd, device, kind }, EventFlags::IN)
        });
        match opened {
            Ok(key) => self.greet(qp, key),
            Err(why) => crate::log::debug!(%why, "no connection to the peer"),
        }
    }

    fn link(&mut self, key: SocketKey) -> Option<&mut Link> {
        match self.sockets.get_mut(key) {
            Some(Socket { kind: Kind::Link(link), .. }) => Some(link),
            _ => None,
        }
    }

    fn enqueue(&mut self, key: SocketKey, frame: Outgoing) {
        let Some(link) = self.link(key) else { return };
        if let Err(why) = link.outflow.push(frame) {
            return self.lose(key, &why);
        }
        self.mark_dirty(key);
    }

    /// Has the next flush send what is queued on a connection.
    fn mark_dirty(&mut self, key: SocketKey) {
        if let Some(link) = self.link(key)
            && !std::mem::replace(&mut link.dirty, true)
        {
            self.dirty.push(key);
        }
    }

    /// Sends the queued frames of a connection, and lets epoll report when the rest can follow.
    fn write(
        &mut self,
        now: Instant,
        key: SocketKey,
        sink: &mut dyn Sink,
        budget: usize,
    ) -> Result<usize, LinkError> {
        let Some(socket) = self.sockets.get_mut(key) else { return Ok(0) };
        let fd = socket.fd.as_fd();
        match &mut socket.kind {
            Kind::Link(link) => {
                let wrote = link.write(now, fd, sink, budget)?;
                let wanted = link.wanted();
                if wanted != link.watched {
                    link.watched = wanted;
                    epoll::modify(&self.epoll, fd, data(key), wanted).map_err(io::Error::from)?;
                }
                Ok(wrote)
            }
            Kind::Lingering(lingering) => {
                lingering.deadline = Some(now + LINGER_WAIT);
                // Only frames without payload are left, which are few bytes. Whatever the socket does not take is lost.
                lingering.outflow.write(fd, sink, usize::MAX)?;
                // A failure means that the connection is gone already.
                let _ = rustix::net::shutdown(fd, Shutdown::Write);
                self.watch(key, EventFlags::IN)?;
                Ok(0)
            }
            Kind::Listener | Kind::Stranger(_) => Ok(0),
        }
    }

    /// Reads what has come on a socket. Returns the number of bytes that were delivered to a queue pair.
    fn read(&mut self, now: Instant, key: SocketKey, sink: &mut dyn Sink) -> Result<usize, LinkError> {
        let Some(socket) = self.sockets.get_mut(key) else { return Ok(0) };
        let fd = socket.fd.as_fd();
        match &mut socket.kind {
            // The socket may have become writable alone, while its requests must not be read.
            Kind::Link(link) if !link.watched.contains(EventFlags::IN) => return Ok(0),
            Kind::Link(link) => {
                let read = link.read(now, fd, sink, &mut self.staging, BUDGET);
                if link.inflow.take_hello() {
                    let qp = link.qp;
                    self.be_asked_on(qp, key);
                }
                return read;
            }
            // Whatever still comes is dropped, until the peer closes its end.
            Kind::Lingering(_) => drop(socket::receive_into(fd, &mut self.staging)?),
            Kind::Stranger(_) => self.read_hello(key, sink)?,
            Kind::Listener => self.accept(now, key, sink),
        }
        Ok(0)
    }
}

fn data(key: SocketKey) -> EventData {
    EventData::new_u64(key.data().as_ffi())
}

impl Tcp {
    /// Listens for peers of `device` at the address and port of its GID (port 0: a free one), and returns the port.
    pub(crate) fn listen(&mut self, device: DeviceRef, address: SocketAddrV4) -> io::Result<u16> {
        let (fd, port) = socket::listen(address)?;
        self.insert(Socket { fd, device, kind: Kind::Listener }, EventFlags::IN)?;
        self.listeners += 1;
        Ok(port)
    }

    /// Closes the listener of `device` and its connections, because the driver may end with the last device.
    pub(crate) fn unlisten(&mut self, device: DeviceRef) {
        let theirs = self.sockets.iter().filter(|(_, socket)| socket.device == device);
        let keys: Vec<_> = theirs.map(|(key, _)| key).collect();
        for key in keys {
            self.remove(key);
        }
    }

    /// Notes that `qp` of `device` is ready to receive, and that its requester will send to the peer. Errors show as
    /// silence.
    pub(crate) fn connect(&mut self, device: DeviceRef, qp: QpRef, hello: &Hello) {
        self.retry_waiting_due = !self.strangers.is_empty();
        // The step to RTR takes this wire only for a GID that listens.
        let Some(address) = gid::listens_at(hello.destination_gid) else { return };
        let names = [(hello.source_gid.0, hello.source_qp), (hello.destination_gid.0, hello.destination_qp)];
        let yields = names[0] > names[1];
        let hello = frame::encode_hello(hello);
        let requester = Requester { device, address, hello, yields, link: None, last: None };
        self.requesters.insert(qp, requester);
    }

    /// Queues a request and its payload, in order. An acknowledgement that is held back goes with it.
    pub(crate) fn enqueue_request(&mut self, qp: QpRef, request: &Request, payload: Option<Payload>) {
        let Some(key) = self.open(qp) else { return };
        if let Some(requester) = self.requesters.get_mut(qp) {
            requester.last = Some(request.psn);
        }
        let looks = self.held_acks.looks();
        if let Some(link) = self.link(key) {
            link.acks.pays |= looks - link.acks.given < HeldAcks::LOOKS_IF_ASKED;
            link.acks.asked = false;
            if std::mem::take(&mut link.acks.held) {
                self.held.retain(|it| *it != key);
                if self.held.is_empty() {
                    self.held_acks.note_sent();
                }
            }
        }
        self.enqueue(key, Outgoing::new(&frame::encode_request(request), payload, Class::Request));
    }

    /// Queues a reply on the connection on which `qp`'s responder was last asked. The number of queued replies is
    /// bounded, because no further request is read from a connection that does not drain.
    pub(crate) fn enqueue_reply(&mut self, qp: QpRef, reply: &Reply, payload: Option<Payload>) {
        let Some(&key) = self.responders.get(qp) else { return };
        let class = if reply.kind == ReplyKind::Ack { Class::Ack } else { Class::Reply };
        let frame = Outgoing::new(&frame::encode_reply(reply), payload, class);
        let (looks, allowed) = (self.held_acks.looks(), self.held_acks.allowed());
        // Where this end's requests go on another connection, none comes that the acknowledgement could go with.
        let requests_go_there =
            self.requesters.get(qp).and_then(|requester| requester.link).is_none_or(|link| link == key);
        if class == Class::Ack
            && let Some(link) = self.link(key)
        {
            link.acks.given = looks;
            let may_wait = link.ack_may_wait(reply.psn);
            if let Some(looks) = may_wait.filter(|_| allowed && requests_go_there) {
                return self.hold(key, frame, looks);
            }
        }
        self.enqueue(key, frame);
    }

    /// Queues an acknowledgement that leaves with whatever is queued next on its connection, or after so many looks.
    fn hold(&mut self, key: SocketKey, ack: Outgoing, looks: u64) {
        let Some(link) = self.link(key) else { return };
        if let Err(why) = link.outflow.push(ack) {
            return self.lose(key, &why);
        }
        if !std::mem::replace(&mut link.acks.held, true) {
            self.held.push(key);
        }
        self.held_acks.note_held(looks);
    }

    /// Sends the acknowledgements that are held back: no request has come that they could go with.
    pub(crate) fn send_held(&mut self, now: Instant, sink: &mut dyn Sink) {
        self.held_acks.note_sent();
        let mut held = std::mem::take(&mut self.held);
        for key in held.drain(..) {
            if let Some(link) = self.link(key)
                && std::mem::take(&mut link.acks.held)
            {
                link.acks.pays &= !std::mem::take(&mut link.acks.asked);
                self.mark_dirty(key);
            }
        }
        self.held = held;
        self.flush(now, sink);
    }

    /// Sends what was queued since the last call, as far as the sockets take it at once.
    pub(crate) fn flush(&mut self, now: Instant, sink: &mut dyn Sink) {
        self.served = Some(now);
        self.retry_waiting(sink);
        let mut budget = BUDGET;
        let mut dirty = std::mem::take(&mut self.dirty);
        for key in dirty.drain(..) {
            let waits = self.link(key).is_some_and(|link| {
                link.dirty = false;
                link.watched.contains(EventFlags::OUT)
            });
            // A connection that waits for room is sent by epoll's event already; whatever is queued by then goes in
            // one call.
            match self.write(now, key, sink, if waits { 0 } else { budget }) {
                Ok(bytes) => budget -= bytes.min(budget),
                Err(why) => self.lose(key, &why),
            }
        }
        self.dirty = dirty;
    }

    /// Drops the queued requests of `qp` of which no byte was sent: the requester sends them again.
    pub(crate) fn reset(&mut self, qp: QpRef) {
        if let Some(Requester { link: Some(key), .. }) = self.requesters.get(qp)
            && let Some(link) = self.link(*key)
        {
            link.outflow.drop_unsent();
        }
    }

    /// Closes the connection on which `qp`'s responder is asked: its peer takes another wire.
    pub(crate) fn close_inbound(&mut self, qp: QpRef) {
        if let Some(key) = self.responders.remove(qp) {
            self.remove(key);
        }
    }

    /// Closes the connections of `qp`, which is in ERR or gone. Replies that are queued already, such as the refusal
    /// that moved it to ERR, are still sent if they have no payload.
    pub(crate) fn close(&mut self, qp: QpRef) {
        let own = self.requesters.remove(qp).and_then(|requester| requester.link);
        let asked_on = self.responders.remove(qp);
        if let Some(key) = own.filter(|_| own != asked_on) {
            self.remove(key);
        }
        if let Some(key) = asked_on {
            self.linger(key);
        }
    }

    /// Whether there is any connection, so that it pays to look for input.
    pub(crate) fn is_connected(&self) -> bool {
        self.sockets.len() > self.listeners
    }

    /// Serves the descriptor that the driver's epoll knows by `key`, which is ready.
    pub(crate) fn ready(&mut self, now: Instant, key: u64, sink: &mut dyn Sink) {
        self.served = Some(now);
        let key = SocketKey::from(KeyData::from_ffi(key));
        if let Err(why) = self.read(now, key, sink) {
            return self.lose(key, &why);
        }
        if self.link(key).is_some_and(|link| link.watched.contains(EventFlags::OUT))
            && let Err(why) = self.write(now, key, sink, BUDGET)
        {
            self.lose(key, &why);
        }
    }

    /// Reads the only connection, without asking epoll: a rank or a side of a transfer that has one peer hears from it
    /// alone, and the question takes as long as the answer. Returns whether anything was there. `None` if epoll must
    /// be asked.
    pub(crate) fn read_the_only_one(&mut self, now: Instant, sink: &mut dyn Sink) -> Option<bool> {
        if self.sockets.len() != self.listeners + 1 {
            return None;
        }
        self.looks_at_one = (self.looks_at_one + 1) % (LOOKS_AT_ONE + 1);
        let mut links = self.sockets.iter().filter_map(|(key, socket)| match &socket.kind {
            Kind::Link(link) => Some((key, link)),
            _ => None,
        });
        let (key, link) = links.next()?;
        if self.looks_at_one == 0 || link.watched.contains(EventFlags::OUT) {
            return None;
        }
        self.served = Some(now);
        let read = self.read(now, key, sink);
        let came = !matches!(read, Ok(0));
        if let Err(why) = read {
            self.lose(key, &why);
        }
        Some(came)
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let waiting = self.oldest_waiting().map(|(_, deadline)| deadline);
        waiting.into_iter().chain(self.accept_paused).min()
    }

    /// Closes the connections that took too long, and accepts again after a pause.
    pub(crate) fn handle_timeout(&mut self, now: Instant, sink: &mut dyn Sink) {
        self.served = Some(now);
        self.retry_waiting(sink);
        if self.accept_paused.is_some_and(|until| until <= now) {
            self.accept_paused = None;
            self.watch_listeners(EventFlags::IN);
        }
        while let Some((key, deadline)) = self.oldest_waiting()
            && deadline <= now
        {
            self.lose(key, &LinkError::Overdue);
        }
    }
}
