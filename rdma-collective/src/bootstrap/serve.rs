//! The loop of the store's server: one thread, one poll, a bounded number of connections.
//!
//! The loop moves bytes and enforces time limits; the answers are decided in `store`. Connections that have not joined
//! (strangers) make room for newer ones, so that nobody can keep the ranks out by connecting and staying silent.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::debug;

use super::connection::{Connection, Dropped, State};
use super::frame::{Frame, VERSION};
use super::message::{Ranks, Refusal, Reply, Request};
use super::store::{ConnectionId, Effect, Store};
use super::store_server::StoreOptions;
use crate::bootstrap::FrameError;

/// Connections accepted in a row, before the existing ones are served again.
const ACCEPTED_AT_ONCE_MAX: usize = 64;
/// The pause in accepting when the system has no descriptor left, and no stranger can be dropped.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// The task of the server's thread, set by its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Serve.
    Serve,
    /// End as soon as every rank has left, and at that time at the latest.
    End { by: Instant },
}

/// The state of the server's thread.
#[derive(Debug)]
pub(super) struct Service {
    listener: TcpListener,
    wake: Arc<OwnedFd>,
    mode: Arc<Mutex<Mode>>,
    options: StoreOptions,
    store: Store,
    /// The connections by age, since identifiers only grow.
    connections: BTreeMap<ConnectionId, Connection>,
    next_id: ConnectionId,
    accept_after: Option<Instant>,
}

impl Service {
    pub(super) fn new(
        listener: TcpListener,
        wake: Arc<OwnedFd>,
        mode: Arc<Mutex<Mode>>,
        options: StoreOptions,
    ) -> Self {
        let store = Store::new(options.token, options.world);
        Self {
            listener,
            wake,
            mode,
            options,
            store,
            connections: BTreeMap::new(),
            next_id: 0,
            accept_after: None,
        }
    }

    /// Serves until the mode says otherwise, and returns the ranks that had not left.
    pub(super) fn run(mut self) -> io::Result<Ranks> {
        loop {
            let mode = *self.mode.lock().unwrap_or_else(PoisonError::into_inner);
            if let Mode::End { by } = mode {
                self.connections.retain(|_, connection| connection.state == State::Member);
                if self.connections.is_empty() || by <= Instant::now() {
                    let present = self.store.present();
                    // A frame that is on its way cannot be followed by another.
                    self.connections.retain(|_, connection| !connection.is_sending());
                    self.store.say_why();
                    self.carry_out();
                    return Ok(present);
                }
            }
            let ready = self.wait(mode)?;
            for (id, flags) in ready {
                self.turn(id, flags);
            }
            let now = Instant::now();
            self.store.handle_timeout(now);
            self.carry_out();
            self.expire(now);
        }
    }

    /// Waits for events and deadlines, accepts new connections, and returns the connections that are ready.
    fn wait(&mut self, mode: Mode) -> io::Result<Vec<(ConnectionId, PollFlags)>> {
        let now = Instant::now();
        self.accept_after = self.accept_after.filter(|after| *after > now);
        let accept = mode == Mode::Serve && self.accept_after.is_none();
        let flags = if accept { PollFlags::IN } else { PollFlags::empty() };
        let mut polled = vec![PollFd::new(&*self.wake, PollFlags::IN), PollFd::new(&self.listener, flags)];
        polled.extend(self.connections.iter().map(|(id, connection)| {
            PollFd::new(&connection.stream, connection.interest(self.store.is_waiting(*id)))
        }));
        let next = self.connections.values().filter_map(|connection| connection.expires);
        let end = if let Mode::End { by } = mode { Some(by) } else { None };
        let next = next.chain(self.store.poll_timeout()).chain(self.accept_after).chain(end).min();
        let timeout = next.map(|next| timespec(next.saturating_duration_since(now)));
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = self.connections.keys().zip(&polled[2..]);
        let ready = ready.map(|(id, polled)| (*id, polled.revents())).filter(|(_, flags)| !flags.is_empty());
        let ready = ready.collect();
        let (woken, incoming) = (!polled[0].revents().is_empty(), !polled[1].revents().is_empty());
        if woken {
            // The count is of no interest: the read only makes the descriptor unreadable again.
            let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        }
        if incoming && accept {
            self.accept();
        }
        Ok(ready)
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED_AT_ONCE_MAX {
            let (stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if is_exhausted(&error) => {
                    if !self.drop_oldest_stranger() {
                        debug!(%error, "cannot accept");
                        self.accept_after = Some(Instant::now() + ACCEPT_PAUSE);
                        return;
                    }
                    continue;
                }
                // The connection ended before it was accepted.
                Err(_) => continue,
            };
            if self.connections.len() >= self.options.connections_max && !self.drop_oldest_stranger() {
                debug!(%from, "dropped: no room among those that have joined");
                continue;
            }
            let expires = Instant::now().checked_add(self.options.hello_timeout);
            if let Ok(connection) = Connection::new(stream, from, expires) {
                self.connections.insert(self.next_id, connection);
                self.next_id += 1;
            }
        }
    }

    /// Drops the oldest connection that has not joined, so that silent strangers keep nobody out; `false` if there is
    /// none.
    fn drop_oldest_stranger(&mut self) -> bool {
        let oldest = self.connections.iter().find(|(_, connection)| connection.state != State::Member);
        let Some((&id, connection)) = oldest else { return false };
        debug!(from = %connection.from, "dropped: makes room");
        self.connections.remove(&id).is_some()
    }

    /// Handles the events of one connection.
    fn turn(&mut self, id: ConnectionId, flags: PollFlags) {
        let until = Instant::now().checked_add(self.options.transfer_timeout);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let done = if flags.contains(PollFlags::OUT) {
            connection.flush().map(|()| None)
        } else if !flags.contains(PollFlags::IN) {
            // Ready, but neither readable nor writable: the connection has ended.
            Err(Dropped::Closed)
        } else if let State::Refused { .. } = connection.state {
            connection.discard().map(|()| None)
        } else {
            connection.receive(until)
        };
        let member = connection.state == State::Member;
        match done {
            Ok(None) => {}
            Ok(Some(frame)) if member => self.request(id, &frame),
            Ok(Some(frame)) => self.hello(id, &frame),
            Err(Dropped::Frame(FrameError::OtherVersion { theirs })) if !member => {
                self.refuse(id, 0, Refusal::OtherVersion { store: VERSION, client: theirs });
            }
            Err(reason) => self.remove(id, &reason),
        }
        self.carry_out();
    }

    fn request(&mut self, id: ConnectionId, frame: &Frame) {
        match Request::decode(frame) {
            Ok(request) => self.store.handle_request(Instant::now(), id, frame.id, request),
            Err(error) => self.remove(id, &Dropped::Frame(error)),
        }
    }

    fn hello(&mut self, id: ConnectionId, frame: &Frame) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match Request::decode(frame) {
            Ok(Request::Hello(hello)) => match self.store.join(id, connection.from, &hello) {
                Ok(()) => {
                    connection.admit();
                    self.send(id, Reply::Welcome.encode(frame.id));
                }
                Err(refusal) => self.refuse(id, frame.id, refusal),
            },
            Ok(_) => self.remove(id, &Dropped::Frame(FrameError::Malformed { what: "first message" })),
            Err(error) => self.remove(id, &Dropped::Frame(error)),
        }
    }

    fn refuse(&mut self, id: ConnectionId, request: u32, refusal: Refusal) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        debug!(from = %connection.from, ?refusal, "refused");
        connection.state = State::Refused { discarded: 0 };
        self.send(id, Reply::Refused(refusal).encode(request));
    }

    fn send(&mut self, id: ConnectionId, frame: Frame) {
        let until = Instant::now().checked_add(self.options.transfer_timeout);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Err(reason) = connection.send(frame, until) {
            self.remove(id, &reason);
        }
    }

    /// Carries out the effects that the store has decided.
    fn carry_out(&mut self) {
        while let Some(effect) = self.store.poll_effect() {
            match effect {
                Effect::Send { connection, frame } => self.send(connection, frame),
                Effect::Close { connection } => {
                    self.connections.remove(&connection);
                }
            }
        }
    }

    fn expire(&mut self, now: Instant) {
        let over = |connection: &Connection| connection.expires.is_some_and(|expires| expires <= now);
        let expired: Vec<ConnectionId> =
            self.connections.iter().filter(|(_, connection)| over(connection)).map(|(id, _)| *id).collect();
        for id in expired {
            self.remove(id, &Dropped::Expired);
        }
        self.carry_out();
    }

    fn remove(&mut self, id: ConnectionId, reason: &Dropped) {
        if let Some(connection) = self.connections.remove(&id) {
            debug!(from = %connection.from, %reason, "dropped");
        }
        self.store.handle_disconnect(id);
    }
}

/// Whether accepting failed for want of descriptors or memory, which closing a connection may give back.
fn is_exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| exhausted.contains(&errno))
}

/// A timeout for `poll`, rounded up to the millisecond: a shorter sleep would end before the deadline, and poll again.
fn timespec(duration: Duration) -> Timespec {
    let millis = duration.as_micros().div_ceil(1000).min(3_600_000) as i64;
    Timespec { tv_sec: millis / 1000, tv_nsec: (millis % 1000) * 1_000_000 }
}
