//! The handshake of two processes over one TCP connection: greetings with the job's token, then blobs, then READY.
//!
//! The order matters:
//!
//! 1. **Token before trust.** The side that connects sends its token. The listener checks it before it reads anything
//!    else or shows its own: a stranger costs one connection and 24 bytes, and can neither block the listener nor learn
//!    the token. The side that connects checks the answer likewise, because another job may listen there.
//! 2. **Blobs.** Each side has posted its receives before it sends its blob, so the peer may use the blob at once.
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
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::blob::{BLOB_BYTES_MAX, HEADER_BYTES, total_bytes};
use crate::bootstrap::JobToken;
use crate::link::HandshakeError;

/// The first bytes of every greeting.
const MAGIC: [u8; 4] = *b"RDMH";
/// The version of the greeting and of what follows it.
const VERSION: u16 = 1;
/// Bytes of a greeting: magic (4), version (2), verdict (2), token (16).
const GREETING_BYTES: usize = 24;
/// The time that a stranger has for its greeting, so that a silent one does not hold a place.
const GREETING_WITHIN: Duration = Duration::from_secs(2);
/// Strangers that are listened to at once; a further one takes the place of the oldest.
const STRANGERS_MAX: usize = 16;
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

/// A process that has connected and has not shown a token yet.
#[derive(Debug)]
struct Stranger {
    stream: TcpStream,
    peer: SocketAddr,
    until: Deadline,
    greeting: [u8; GREETING_BYTES],
    /// Bytes of the greeting that have arrived.
    len: usize,
}

/// The outcome of listening to a stranger.
enum Heard {
    /// The stranger is a process of the job.
    Met(Met),
    /// The greeting is not complete yet.
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
        Meet::Accept(listener) => accept(listener, token, deadline),
        Meet::Connect(address) => connect(*address, token, deadline),
    }
}

/// Accepts connections until one shows the job's token.
fn accept(listener: &TcpListener, token: &JobToken, deadline: Deadline) -> Result<Met, HandshakeError> {
    let failed = |source| HandshakeError::Listen { source };
    let started = Instant::now();
    // Non-blocking, because another thread may accept the connection that this one was woken for: a blocking accept
    // would then wait beyond the deadline.
    listener.set_nonblocking(true).map_err(failed)?;
    let mut strangers = VecDeque::new();
    loop {
        strangers.retain(|stranger: &Stranger| !stranger.until.expired());
        if deadline.expired() {
            return Err(HandshakeError::NobodyCame { waited: started.elapsed() });
        }
        wait(listener, &strangers, deadline).map_err(failed)?;
        // All waiting connections are accepted before any is listened to: with one at a time, a crowd of strangers
        // would keep the peer in the listener's queue.
        for _ in 0..ACCEPTED_MAX {
            let (stream, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                // The connection went away again, another thread was faster, or the wake-up was for a stranger.
                Err(error) if is_passing(&error) => break,
                Err(source) => return Err(failed(source)),
            };
            let Some(stranger) = Stranger::new(stream, peer) else { continue };
            strangers.push_back(stranger);
            // The oldest makes room, after one last look: its token may just have arrived.
            let oldest = if strangers.len() > STRANGERS_MAX { strangers.pop_front() } else { None };
            if let Some(Heard::Met(met)) = oldest.map(|oldest| oldest.hear(token, deadline)) {
                return Ok(met);
            }
        }
        for stranger in std::mem::take(&mut strangers) {
            match stranger.hear(token, deadline) {
                Heard::Met(met) => return Ok(met),
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
    pub(crate) fn exchange(&mut self, blob: &[u8]) -> Result<Vec<u8>, HandshakeError> {
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
        let mut bytes = [0; GREETING_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6..8].copy_from_slice(&verdict.0.to_le_bytes());
        bytes[8..].copy_from_slice(token);
        self.write(&bytes)
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
    fn new(stream: TcpStream, peer: SocketAddr) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        let until = Deadline::after(GREETING_WITHIN);
        Some(Self { stream, peer, until, greeting: [0; GREETING_BYTES], len: 0 })
    }

    /// Reads what has arrived, and answers once the greeting is complete.
    fn hear(mut self, token: &JobToken, deadline: Deadline) -> Heard {
        match self.listen() {
            Ok(false) => Heard::Waits(self),
            Ok(true) => match self.answer(token, deadline) {
                Ok(met) => Heard::Met(met),
                Err(error) => {
                    crate::log::debug!(%error, "a connection was sent away in the handshake");
                    Heard::Gone
                }
            },
            Err(error) => {
                crate::log::debug!(peer = %self.peer, %error, "a connection ended before its greeting was complete");
                Heard::Gone
            }
        }
    }

    /// Reads what has arrived, and returns whether the greeting is complete. Never waits.
    fn listen(&mut self) -> io::Result<bool> {
        loop {
            let missing = self.greeting.get_mut(self.len..).unwrap_or_default();
            if missing.is_empty() {
                return Ok(true);
            }
            match self.stream.read(missing) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.len += read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Checks the token and answers. Only a stranger that has shown the token is sent it back.
    fn answer(self, token: &JobToken, deadline: Deadline) -> Result<Met, HandshakeError> {
        let Self { stream, peer, until, greeting, .. } = self;
        stream.set_nonblocking(false).map_err(|source| HandshakeError::Lost { peer, source })?;
        let mut met = Met { stream, peer, deadline: deadline.min(until) };
        let (_, theirs) = read_greeting(peer, greeting)?;
        if theirs != *token {
            met.greet(Verdict::OTHER_TOKEN, &[0; 16])?;
            return Err(HandshakeError::OtherToken { peer });
        }
        met.greet(Verdict::WELCOME, token.as_bytes())?;
        met.deadline = deadline;
        Ok(met)
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
