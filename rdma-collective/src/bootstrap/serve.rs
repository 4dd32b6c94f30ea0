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

use rdma_core::strangers::{Door, Place};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connection::{Connection, Dropped, State};
use super::frame::{Frame, VERSION};
use super::message::{Hello, Ranks, Refusal, Reply, Request, take_number};
use super::store::{ConnectionId, Effect, Served, Store};
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
    /// Whether the log has heard of a second job: once, because a stranger may come again and again.
    warned: bool,
}

impl Service {
    pub(super) fn new(
        listener: TcpListener,
        wake: Arc<OwnedFd>,
        mode: Arc<Mutex<Mode>>,
        options: StoreOptions,
        served: Served,
    ) -> Self {
        let store = Store::new(options.token, options.world, served);
        Self {
            listener,
            wake,
            mode,
            options,
            store,
            connections: BTreeMap::new(),
            next_id: 0,
            accept_after: None,
            warned: false,
        }
    }

    /// Serves until the mode says otherwise, and returns the ranks that had not left.
    pub(super) fn run(mut self) -> io::Result<Ranks> {
        loop {
            let mode = *self.mode.lock().unwrap_or_else(PoisonError::into_inner);
            if let Mode::End { by } = mode {
                if self.store.end() {
                    self.refuse_the_joining();
                }
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
                        crate::log::debug!(%error, "cannot accept");
                        self.accept_after = Some(Instant::now() + ACCEPT_PAUSE);
                        return;
                    }
                    continue;
                }
                // The connection ended before it was accepted.
                Err(_) => continue,
            };
            let Some(place) = self.take_place() else {
                crate::log::debug!(%from, "dropped: no room among those that have joined");
                continue;
            };
            let expires = Instant::now().checked_add(self.options.hello_timeout);
            if let Ok(connection) = Connection::new(stream, from, place, expires) {
                self.connections.insert(self.next_id, connection);
                self.next_id += 1;
            }
        }
    }

    /// Takes a place for a newcomer; the oldest strangers make room for it. `None` if there is no room among those that
    /// have joined.
    fn take_place(&mut self) -> Option<Place> {
        loop {
            let room = self.connections.len() < self.options.connections_max;
            match room.then(|| Place::take(Door::Store)).flatten() {
                None if self.drop_oldest_stranger() => {}
                place => return place.or_else(|| room.then(|| Place::first(Door::Store))),
            }
        }
    }

    /// Drops the oldest connection that has not joined after one last look, so that silent strangers keep nobody out;
    /// `false` if there is none.
    fn drop_oldest_stranger(&mut self) -> bool {
        let stranger = |connection: &Connection| connection.state != State::Member;
        let oldest = self.connections.iter().find(|(_, connection)| stranger(connection));
        let Some((&id, connection)) = oldest else { return false };
        if connection.state == State::Stranger {
            // The hello may just have arrived.
            self.turn(id, PollFlags::IN);
        }
        if let Some(connection) = self.connections.get(&id).filter(|connection| stranger(connection)) {
            crate::log::debug!(from = %connection.from, "dropped: makes room");
            self.connections.remove(&id);
        }
        true
    }

    /// Tells those that are joining right now which rank has left. They would take the end of the store for the cause.
    fn refuse_the_joining(&mut self) {
        self.accept();
        let joining = |connection: &Connection| connection.state == State::Stranger;
        let ids = self.connections.iter().filter(|(_, connection)| joining(connection)).map(|(id, _)| *id);
        for id in ids.collect::<Vec<_>>() {
            self.turn(id, PollFlags::IN);
        }
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
        let request = take_number(frame).and_then(|(number, frame)| Ok((number, Request::decode(&frame)?)));
        match request {
            Ok((number, request)) if number == self.store.number() => {
                self.store.handle_request(Instant::now(), id, frame.id, request);
            }
            Ok((client, _)) => {
                let refusal = Refusal::OtherNumber { store: self.store.number(), client };
                self.send(id, Reply::Refused(refusal).encode(frame.id));
            }
            Err(error) => self.remove(id, &Dropped::Frame(error)),
        }
    }

    fn hello(&mut self, id: ConnectionId, frame: &Frame) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match Request::decode(frame) {
            Ok(Request::Hello(hello)) => match self.store.join(id, connection.from, &hello) {
                Ok(()) => {
                    connection.admit();
                    self.send(id, Reply::Welcome { number: self.store.number() }.encode(frame.id));
                }
                Err(refusal) => self.refuse_process(id, frame.id, refusal, &hello),
            },
            Ok(Request::Claim(hello)) => {
                let refusal = self.store.claim(&hello);
                self.refuse_process(id, frame.id, refusal, &hello);
            }
            Ok(_) => self.remove(id, &Dropped::Frame(FrameError::Malformed { what: "first message" })),
            Err(error) => self.remove(id, &Dropped::Frame(error)),
        }
    }

    /// Refuses a process, and tells the log of this side what the process must not hear.
    fn refuse_process(&mut self, id: ConnectionId, request: u32, refusal: Refusal, hello: &Hello) {
        let from = self.connections.get(&id).map(|connection| connection.from);
        match (&refusal, from) {
            (Refusal::OtherToken, Some(from)) => {
                crate::log::debug!(%from, theirs = %hello.token, ours = %self.options.token, "refused: another token");
            }
            (Refusal::TwoJobs { rank, .. }, Some(from)) if !self.warned => {
                self.warned = true;
                crate::log::warn!(
                    "two jobs use one port: a second process came as rank {rank}, process {} from {from}; give each \
                     job its own MASTER_PORT or RDMA_JOB_TOKEN",
                    hello.pid
                );
            }
            _ => {}
        }
        self.refuse(id, request, refusal);
    }

    fn refuse(&mut self, id: ConnectionId, request: u32, refusal: Refusal) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        crate::log::debug!(from = %connection.from, ?refusal, "refused");
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
            crate::log::debug!(from = %connection.from, %reason, "dropped");
        }
        self.store.handle_disconnect(id);
    }
}

/// Whether accepting failed for want of descriptors or memory, which closing a connection may give back.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| exhausted.contains(&errno))
}

/// A timeout for `poll`, rounded up to the millisecond: a shorter sleep would end before the deadline, and poll again.
fn timespec(duration: Duration) -> Timespec {
    let millis = duration.as_micros().div_ceil(1000).min(3_600_000) as i64;
    Timespec { tv_sec: millis / 1000, tv_nsec: (millis % 1000) * 1_000_000 }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::bootstrap::JobToken;
    use crate::bootstrap::frame::FrameReader;

    /// A store of three ranks, of which rank 1 has joined and left, and one connection that says `said` and is not
    /// accepted yet. The store ends; returns what it answers.
    fn last_word(said: &[u8]) -> Option<Reply> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.write_all(said).unwrap();
        let from = stream.local_addr().unwrap();
        // Loopback has delivered the bytes by then.
        std::thread::sleep(Duration::from_millis(20));
        listener.set_nonblocking(true).unwrap();
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        let mode = Arc::new(Mutex::new(Mode::End { by: Instant::now() }));
        let options = StoreOptions::new(TOKEN, 3);
        let mut service = Service::new(listener, Arc::new(wake), mode, options, Served::default());
        service.store.join(100, from, &hello(1)).unwrap();
        service.store.handle_request(Instant::now(), 100, 0, Request::Hello(hello(1)));
        service.store.handle_disconnect(100);
        assert_eq!(service.run().unwrap(), Ranks::default());
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let mut reader = FrameReader::new(1000);
        let header = bytes.get(..reader.wanted())?;
        assert!(reader.push(header).unwrap().is_none());
        let frame = reader.push(&bytes[header.len()..]).unwrap().expect("one frame");
        Some(Reply::decode(&frame).unwrap())
    }

    const TOKEN: JobToken = JobToken::from_bytes([3; 16]);

    fn hello(rank: u32) -> Hello {
        let run = crate::bootstrap::message::run_hash("");
        Hello { token: TOKEN, rank, world: 3, attempt: 5, run, pid: 7 }
    }

    #[test]
    fn a_rank_that_is_joining_when_the_store_ends_hears_which_rank_has_left() {
        let said = Request::Hello(hello(2)).encode(9).encode();
        let told = last_word(&said);
        assert_eq!(told, Some(Reply::Refused(Refusal::Left { rank: 1 })));
        let stranger = Hello { token: JobToken::from_bytes([4; 16]), ..hello(2) };
        let told = last_word(&Request::Hello(stranger).encode(9).encode());
        assert_eq!(told, Some(Reply::Refused(Refusal::OtherToken)), "a stranger hears nothing of the job");
        assert_eq!(last_word(&said[..20]), None);
    }
}
