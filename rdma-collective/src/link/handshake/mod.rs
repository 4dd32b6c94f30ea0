//! The handshake of two processes over one TCP connection: greetings with the job's token, then blobs, then READY.
//!
//! The order matters:
//!
//! 1. **Token before trust.** The side that connects sends its token. The listener checks it before it reads anything
//!    else or shows its own: a stranger costs one connection and 24 bytes, and can neither block the listener nor learn
//!    the token. The side that connects checks the answer likewise, because another job may listen there.
//! 2. **Blobs.** Each side has posted its receives before it sends its blob, so the peer may use the blob at once. The
//!    listener sends its own only to a connection that has sent one: until then it hears all others beside that one,
//!    because many jobs have a token that anybody knows.
//! 3. **READY.** Each side has connected its queue pair before it sends READY, so nothing that is sent afterwards is
//!    lost.
//!
//! The contents of the blobs belong to the users of the link. So does the connection afterwards, which the kernel
//! closes when its process ends: that is how the death of a process on another host is noticed.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rdma_core::strangers::{Door, Place};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;

use super::blob::{BLOB_BYTES_MAX, HEADER_BYTES, is_whole, total_bytes};
use crate::bootstrap::{JobToken, is_exhausted};
use crate::link::HandshakeError;

/// The first bytes of every greeting.
const MAGIC: [u8; 4] = *b"RDMH";
/// The version of the greeting and of what follows it.
const VERSION: u16 = 1;
/// Bytes of a greeting: magic (4), version (2), verdict (2), token (16).
const GREETING_BYTES: usize = 24;
/// The time that a stranger has for its greeting, so that a silent one does not hold a place.
const GREETING_WITHIN: Duration = Duration::from_secs(2);
/// The time that a stranger has for its blob, once it has shown the token.
const BLOB_WITHIN: Duration = Duration::from_secs(5);
/// Connections accepted in a row, before the strangers that are there are listened to again.
const ACCEPTED_MAX: usize = 256;
/// The word that each side sends when it can receive.
const READY: [u8; 4] = *b"REDY";
/// The longest single attempt to connect, so that one lost packet does not cost a minute.
const CONNECT_ATTEMPT: Duration = Duration::from_secs(3);
/// The pause between two attempts to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

/// The place where the two ends of a link meet: one end accepts, the other connects.
///
/// Each end of a KV link takes one. A meeting that fails is a [`HandshakeError`].
#[derive(Debug)]
pub enum Meet<'a> {
    /// The peer connects to this listener. The first process with the job's token is taken, others are sent away.
    ///
    /// The listener is made non-blocking and stays so. Several threads may share it, each with its own deadline.
    Accept(&'a TcpListener),
    /// The peer listens at this address, or will before the deadline.
    Connect(SocketAddr),
}

/// A connection to a process that has shown the job's token.
#[derive(Debug)]
pub(crate) struct Met {
    stream: TcpStream,
    peer: SocketAddr,
    deadline: Deadline,
}

/// A process that has connected, and has not shown the token or sent its blob yet.
#[derive(Debug)]
struct Stranger {
    stream: TcpStream,
    peer: SocketAddr,
    until: Deadline,
    /// The greeting, and then the blob, as far as they have arrived.
    said: Vec<u8>,
    /// Whether the stranger has shown the token.
    greeted: bool,
    _place: Place,
}

/// The outcome of listening to a stranger.
enum Heard {
    /// The stranger is a process of the job; its blob, if one was waited for.
    Met(Met, Vec<u8>),
    /// More bytes are to come.
    Waits(Stranger),
    /// The stranger went away, or was sent away.
    Gone,
}

/// The answer of the listener to a greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Verdict(u16);

impl Verdict {
    const WELCOME: Self = Self(0);
    const OTHER_TOKEN: Self = Self(1);
}

/// Meets a process of the job with `token`, as `how` says.
pub(crate) fn meet(how: &Meet<'_>, token: &JobToken, deadline: Deadline) -> Result<Met, HandshakeError> {
    match how {
        Meet::Accept(listener) => accept(listener, token, None, deadline).map(|(met, _)| met),
        Meet::Connect(address) => connect(*address, token, deadline),
    }
}

/// Meets a process of the job with `token`, as `how` says, and exchanges blobs. Returns the blob of the peer.
///
/// A listener takes the first process that shows the token **and** sends a blob.
pub(crate) fn exchange(
    how: &Meet<'_>,
    token: &JobToken,
    blob: &[u8],
    deadline: Deadline,
) -> Result<(Met, Vec<u8>), HandshakeError> {
    let address = match how {
        Meet::Accept(listener) => return accept(listener, token, Some(blob), deadline),
        Meet::Connect(address) => *address,
    };
    let mut met = connect(address, token, deadline)?;
    loop {
        let lost = match met.exchange(blob) {
            Err(lost @ HandshakeError::Lost { .. }) => lost,
            theirs => return theirs.map(|theirs| (met, theirs)),
        };
        std::thread::sleep(CONNECT_PAUSE.min(deadline.remaining()));
        // Try again: a crowd of strangers may have pushed this connection out before its blob was heard. A listener
        // that is gone meanwhile has ended, and this side says so at once.
        let soon = deadline.min(Deadline::after(CONNECT_ATTEMPT));
        met = connect(address, token, soon).map_err(|_| lost)?;
        met.deadline = deadline;
    }
}

/// Accepts connections until one shows the job's token and sends a blob. Without a blob of this side, the token is
/// enough.
fn accept(
    listener: &TcpListener,
    token: &JobToken,
    blob: Option<&[u8]>,
    deadline: Deadline,
) -> Result<(Met, Vec<u8>), HandshakeError> {
    let failed = |source| HandshakeError::Listen { source };
    let started = Instant::now();
    // Non-blocking, because another thread may accept the connection that this one was woken for: a blocking accept
    // would then wait beyond the deadline.
    listener.set_nonblocking(true).map_err(failed)?;
    let (mut strangers, mut warned) = (VecDeque::new(), false);
    loop {
        strangers.retain(|stranger: &Stranger| !stranger.is_overdue(&mut warned));
        if deadline.expired() {
            return Err(HandshakeError::NobodyCame { waited: started.elapsed() });
        }
        wait(listener, &strangers, deadline).map_err(failed)?;
        // All waiting connections are accepted before any is listened to: with one at a time, a crowd of strangers
        // would keep the peer in the listener's queue.
        for _ in 0..ACCEPTED_MAX {
            let (accepted, exhausted) = match listener.accept() {
                Ok(accepted) => (Some(accepted), false),
                // The connection went away again, another thread was faster, or the wake-up was for a stranger.
                Err(error) if is_passing(&error) => break,
                Err(error) if is_exhausted(&error) => (None, true),
                Err(source) => return Err(failed(source)),
            };
            // The oldest make room, each after one last look: its bytes may just have arrived.
            let mut place = if exhausted { None } else { Place::take(Door::Handshake) };
            while place.is_none()
                && let Some(oldest) = strangers.pop_front()
            {
                if let Heard::Met(met, theirs) = oldest.hear(token, blob, deadline, &mut warned) {
                    return Ok((met, theirs));
                }
                place = Place::take(Door::Handshake);
            }
            match (accepted, place) {
                (Some((stream, peer)), place) => {
                    let place = place.unwrap_or_else(|| Place::first(Door::Handshake));
                    strangers.extend(Stranger::new(stream, peer, place));
                }
                // No descriptor is left, and no stranger of this listener has one.
                (None, None) => {
                    std::thread::sleep(CONNECT_PAUSE.min(deadline.remaining()));
                    break;
                }
                (None, Some(_)) => {}
            }
        }
        for stranger in std::mem::take(&mut strangers) {
            match stranger.hear(token, blob, deadline, &mut warned) {
                Heard::Met(met, theirs) => return Ok((met, theirs)),
                Heard::Waits(stranger) => strangers.push_back(stranger),
                Heard::Gone => {}
            }
        }
    }
}

fn connect(address: SocketAddr, token: &JobToken, deadline: Deadline) -> Result<Met, HandshakeError> {
    let started = Instant::now();
    loop {
        let wait = deadline.remaining().clamp(Duration::from_millis(1), CONNECT_ATTEMPT);
        let source = match TcpStream::connect_timeout(&address, wait) {
            // Without a listener, a connection to an ephemeral port of this host may by chance be connected to itself.
            Ok(stream) if stream.local_addr().is_ok_and(|own| own == address) => {
                ErrorKind::ConnectionRefused.into()
            }
            Ok(stream) => {
                let mut met = Met { stream, peer: address, deadline };
                let greeted = met.greet(Verdict::WELCOME, token.as_bytes());
                match greeted.and_then(|()| met.be_welcomed(token)) {
                    // Try again: a crowd of strangers may have pushed this connection out before it was heard.
                    Err(HandshakeError::Lost { source, .. }) => source,
                    outcome => return outcome.map(|()| met),
                }
            }
            Err(source) => source,
        };
        if deadline.expired() {
            return Err(HandshakeError::Unreachable { address, waited: started.elapsed(), source });
        }
        std::thread::sleep(CONNECT_PAUSE.min(deadline.remaining()));
    }
}

impl Met {
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Sends this side's blob, and receives the peer's.
    fn exchange(&mut self, blob: &[u8]) -> Result<Vec<u8>, HandshakeError> {
        self.write(blob)?;
        let mut bytes = vec![0; HEADER_BYTES];
        self.read(&mut bytes)?;
        // The length in the header is not trusted: at most the longest blob is waited for. Decoding finds a wrong one.
        let total = total_bytes(&bytes).unwrap_or(HEADER_BYTES).clamp(HEADER_BYTES, BLOB_BYTES_MAX);
        bytes.resize(total, 0);
        self.read(&mut bytes[HEADER_BYTES..])?;
        Ok(bytes)
    }

    /// Sends READY, waits for the peer's READY, and returns the connection.
    pub(crate) fn ready(mut self) -> Result<TcpStream, HandshakeError> {
        self.say_ready()?;
        self.hear_ready()?;
        Ok(self.stream)
    }

    /// Sends READY: this side can receive. From now on the peer may take the end of the connection for this side's
    /// death.
    pub(crate) fn say_ready(&mut self) -> Result<(), HandshakeError> {
        self.write(&READY)
    }

    /// Waits for the peer's READY.
    pub(crate) fn hear_ready(&mut self) -> Result<(), HandshakeError> {
        let mut word = [0; READY.len()];
        self.read(&mut word)?;
        if word != READY {
            return Err(HandshakeError::Garbage { peer: self.peer });
        }
        Ok(())
    }

    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Sends a greeting.
    fn greet(&mut self, verdict: Verdict, token: &[u8; 16]) -> Result<(), HandshakeError> {
        self.write(&greeting_of(verdict, token))
    }

    /// Receives the listener's answer, which must show the token too: another job may listen there.
    fn be_welcomed(&mut self, token: &JobToken) -> Result<(), HandshakeError> {
        let mut bytes = [0; GREETING_BYTES];
        self.read(&mut bytes)?;
        match read_greeting(self.peer, bytes)? {
            (Verdict::WELCOME, theirs) if theirs == *token => Ok(()),
            _ => Err(HandshakeError::OtherToken { peer: self.peer }),
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), HandshakeError> {
        while !bytes.is_empty() {
            let remaining = self.remaining()?;
            let written =
                self.stream.set_write_timeout(Some(remaining)).and_then(|()| self.stream.write(bytes));
            match written {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) if is_passing(&error) => {}
                Err(source) => return Err(HandshakeError::Lost { peer: self.peer, source }),
            }
        }
        Ok(())
    }

    fn read(&mut self, mut bytes: &mut [u8]) -> Result<(), HandshakeError> {
        while !bytes.is_empty() {
            let remaining = self.remaining()?;
            let read = self.stream.set_read_timeout(Some(remaining)).and_then(|()| self.stream.read(bytes));
            match read {
                Ok(0) => {
                    let source = ErrorKind::UnexpectedEof.into();
                    return Err(HandshakeError::Lost { peer: self.peer, source });
                }
                Ok(read) => bytes = bytes.get_mut(read..).unwrap_or_default(),
                Err(error) if is_passing(&error) => {}
                Err(source) => return Err(HandshakeError::Lost { peer: self.peer, source }),
            }
        }
        Ok(())
    }

    /// The remaining time as a socket timeout: at least 1 ms, because 0 would mean no timeout at all.
    fn remaining(&self) -> Result<Duration, HandshakeError> {
        let remaining = self.deadline.remaining();
        if remaining.is_zero() {
            return Err(HandshakeError::Silent { peer: self.peer });
        }
        Ok(remaining.max(Duration::from_millis(1)))
    }
}

impl Stranger {
    fn new(stream: TcpStream, peer: SocketAddr, place: Place) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        SockRef::from(&stream).set_send_buffer_size(2 * BLOB_BYTES_MAX).ok()?;
        let until = Deadline::after(GREETING_WITHIN);
        Some(Self { stream, peer, until, said: Vec::new(), greeted: false, _place: place })
    }

    /// Whether the time for the greeting or the blob is over.
    fn is_overdue(&self, warned: &mut bool) -> bool {
        let overdue = self.until.expired();
        if overdue {
            self.say_why(&HandshakeError::Silent { peer: self.peer }, warned);
        }
        overdue
    }

    /// Logs why this connection is closed. Warns of the first one that has shown the job's token: many know it, and may
    /// come again and again.
    fn say_why(&self, error: &HandshakeError, warned: &mut bool) {
        if self.greeted && !std::mem::replace(warned, true) {
            crate::log::warn!(%error, "a connection with the job's token sent no blob, and was closed");
        } else {
            crate::log::debug!(%error, "a connection was sent away in the handshake");
        }
    }

    /// Reads what has arrived, and answers a greeting or a blob once it is complete. Never waits.
    fn hear(mut self, token: &JobToken, blob: Option<&[u8]>, deadline: Deadline, warned: &mut bool) -> Heard {
        match self.answer(token, blob) {
            Ok(false) => return Heard::Waits(self),
            Ok(true) => {}
            Err(error) => {
                self.say_why(&error, warned);
                return Heard::Gone;
            }
        }
        let Self { stream, peer, said, .. } = self;
        match stream.set_nonblocking(false) {
            Ok(()) => Heard::Met(Met { stream, peer, deadline }, said),
            Err(_) => Heard::Gone,
        }
    }

    /// Answers what has arrived. Returns whether this is the peer.
    fn answer(&mut self, token: &JobToken, blob: Option<&[u8]>) -> Result<bool, HandshakeError> {
        if !self.greeted {
            if !self.listen(GREETING_BYTES)? {
                return Ok(false);
            }
            self.answer_greeting(token)?;
        }
        let Some(blob) = blob else { return Ok(true) };
        if !self.listen(HEADER_BYTES)? {
            return Ok(false);
        }
        // The length is only the peer's word, so no more than the longest blob is ever waited for.
        let total = total_bytes(&self.said).filter(|total| (HEADER_BYTES..=BLOB_BYTES_MAX).contains(total));
        let garbage = HandshakeError::Garbage { peer: self.peer };
        match total {
            None => Err(garbage),
            Some(total) if !self.listen(total)? => Ok(false),
            Some(_) if !is_whole(&self.said) => Err(garbage),
            Some(_) => self.say(blob).map(|()| true),
        }
    }

    /// Checks the token and answers. Only a stranger that has shown the token is sent it back.
    fn answer_greeting(&mut self, token: &JobToken) -> Result<(), HandshakeError> {
        let peer = self.peer;
        let said = std::mem::take(&mut self.said);
        let greeting = said.try_into().map_err(|_| HandshakeError::Garbage { peer })?;
        let (_, theirs) = read_greeting(peer, greeting)?;
        if theirs != *token {
            self.say(&greeting_of(Verdict::OTHER_TOKEN, &[0; 16]))?;
            return Err(HandshakeError::OtherToken { peer });
        }
        self.say(&greeting_of(Verdict::WELCOME, token.as_bytes()))?;
        self.greeted = true;
        self.until = Deadline::after(BLOB_WITHIN);
        Ok(())
    }

    /// Reads up to `len` bytes in all, and returns whether all have arrived. Never waits.
    fn listen(&mut self, len: usize) -> Result<bool, HandshakeError> {
        let mut buffer = [0; BLOB_BYTES_MAX];
        while let Some(missing) = len.checked_sub(self.said.len()).filter(|missing| *missing > 0) {
            let into = buffer.get_mut(..missing).unwrap_or_default();
            match self.stream.read(into) {
                Ok(0) => return Err(self.lost(ErrorKind::UnexpectedEof.into())),
                Ok(read) => self.said.extend(into.iter().take(read)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if is_passing(&error) => {}
                Err(source) => return Err(self.lost(source)),
            }
        }
        Ok(true)
    }

    /// Sends at most a blob, which always fits into the socket's buffer. A peer that lets them not fit is lost.
    fn say(&mut self, bytes: &[u8]) -> Result<(), HandshakeError> {
        self.stream.write_all(bytes).map_err(|source| self.lost(source))
    }

    fn lost(&self, source: io::Error) -> HandshakeError {
        HandshakeError::Lost { peer: self.peer, source }
    }
}

/// Waits until a connection or bytes arrive, or until the deadline or a stranger's time is over.
fn wait(listener: &TcpListener, strangers: &VecDeque<Stranger>, deadline: Deadline) -> io::Result<()> {
    let mut polled = vec![PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
    polled.extend(strangers.iter().map(|stranger| PollFd::new(&stranger.stream, PollFlags::IN)));
    let next = strangers.iter().map(|stranger| stranger.until).fold(deadline, Deadline::min);
    let left = next.remaining();
    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The bytes of a greeting.
fn greeting_of(verdict: Verdict, token: &[u8; 16]) -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
    bytes[6..8].copy_from_slice(&verdict.0.to_le_bytes());
    bytes[8..].copy_from_slice(token);
    bytes
}

/// Reads a greeting: the verdict, and the token.
fn read_greeting(
    peer: SocketAddr,
    bytes: [u8; GREETING_BYTES],
) -> Result<(Verdict, JobToken), HandshakeError> {
    let [m0, m1, m2, m3, v0, v1, c0, c1, token @ ..] = bytes;
    if [m0, m1, m2, m3] != MAGIC {
        return Err(HandshakeError::Garbage { peer });
    }
    let theirs = u16::from_le_bytes([v0, v1]);
    if theirs != VERSION {
        return Err(HandshakeError::OtherVersion { peer, ours: VERSION, theirs });
    }
    Ok((Verdict(u16::from_le_bytes([c0, c1])), JobToken::from_bytes(token)))
}

/// Whether an I/O error is temporary, so that the call is made again.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
    )
}

#[cfg(test)]
mod tests;
