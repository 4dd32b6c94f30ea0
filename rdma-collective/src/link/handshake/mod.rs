//! Two processes that meet over one TCP connection: the job's token first, then blobs, then a word that both can receive.
//!
//! Whoever has no token is answered in 24 bytes and costs one connection; nothing of it is used. What the blobs hold is
//! the users' of the link, and so is the connection afterwards: it ends when its process does.

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

/// What every greeting begins with.
const MAGIC: [u8; 4] = *b"RDMH";
/// The version of the greeting and of what follows it.
const VERSION: u16 = 1;
/// Magic, version, verdict, token.
const GREETING_BYTES: usize = 24;
/// How long one that has connected may take to say who it is.
const GREETING_WITHIN: Duration = Duration::from_secs(2);
/// Those that may be about to say it; one more takes the place of the oldest.
const STRANGERS_MAX: usize = 16;
/// Those that are accepted before the others are looked at again.
const ACCEPTED_MAX: usize = 256;
/// What each side says when it can receive.
const READY: [u8; 4] = *b"REDY";
/// The longest that one attempt to connect takes.
const CONNECT_ATTEMPT: Duration = Duration::from_secs(3);
/// The pause between two attempts.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

/// Where the other end of a link is found.
#[derive(Debug)]
pub enum Meet<'a> {
    /// It connects to this listener. The first that has the job's token is taken; others are sent away.
    ///
    /// The listener is made non-blocking and stays so: several threads may share it, each with its deadline.
    Accept(&'a TcpListener),
    /// It listens there, or will before the deadline.
    Connect(SocketAddr),
}

/// A connection to a process of the same job.
#[derive(Debug)]
pub(crate) struct Met {
    stream: TcpStream,
    peer: SocketAddr,
    deadline: Deadline,
}

/// One that has connected and has not said who it is.
#[derive(Debug)]
struct Stranger {
    stream: TcpStream,
    peer: SocketAddr,
    until: Deadline,
    greeting: [u8; GREETING_BYTES],
    /// Bytes of it that have come.
    len: usize,
}

/// What became of a stranger that was listened to.
enum Heard {
    /// It is a process of the job.
    Met(Met),
    /// It has not said all.
    Waits(Stranger),
    /// It went away, or was sent away.
    Gone,
}

/// What a side thinks of the other's greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Verdict(u16);

impl Verdict {
    const WELCOME: Self = Self(0);
    const OTHER_TOKEN: Self = Self(1);
}

/// Meets a process of the job that has `token`.
pub(crate) fn meet(how: &Meet<'_>, token: &JobToken, deadline: Deadline) -> Result<Met, HandshakeError> {
    match how {
        Meet::Accept(listener) => accept(listener, token, deadline),
        Meet::Connect(address) => connect(*address, token, deadline),
    }
}

fn accept(listener: &TcpListener, token: &JobToken, deadline: Deadline) -> Result<Met, HandshakeError> {
    let failed = |source| HandshakeError::Listen { source };
    let started = Instant::now();
    // Whom one thread sees come another may have taken, and then there is nobody to wait for.
    listener.set_nonblocking(true).map_err(failed)?;
    let mut strangers = VecDeque::new();
    loop {
        strangers.retain(|stranger: &Stranger| !stranger.until.expired());
        if deadline.expired() {
            return Err(HandshakeError::NobodyCame { waited: started.elapsed() });
        }
        wait(listener, &strangers, deadline).map_err(failed)?;
        // All that are there, so that a crowd costs each of them a look and not the peer its place.
        for _ in 0..ACCEPTED_MAX {
            let (stream, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                // It went away again, another thread was faster, or one that is here has something to say.
                Err(error) if is_passing(&error) => break,
                Err(source) => return Err(failed(source)),
            };
            let Some(stranger) = Stranger::new(stream, peer) else { continue };
            strangers.push_back(stranger);
            // The oldest makes room, unless it has just said who it is.
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
            // A port of the range that clients are given may by chance be connected to itself.
            Ok(stream) if stream.local_addr().is_ok_and(|own| own == address) => {
                ErrorKind::ConnectionRefused.into()
            }
            Ok(stream) => {
                let mut met = Met { stream, peer: address, deadline };
                let greeted = met.greet(Verdict::WELCOME, token.as_bytes());
                match greeted.and_then(|()| met.be_welcomed(token)) {
                    // Strangers may have taken its place before it was heard.
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

    /// Gives this side's blob, and takes the other's.
    pub(crate) fn exchange(&mut self, blob: &[u8]) -> Result<Vec<u8>, HandshakeError> {
        self.write(blob)?;
        let mut bytes = vec![0; HEADER_BYTES];
        self.read(&mut bytes)?;
        // Only as many bytes as a blob can have are waited for, whatever its header says; its check finds the rest.
        let total = total_bytes(&bytes).unwrap_or(HEADER_BYTES).clamp(HEADER_BYTES, BLOB_BYTES_MAX);
        bytes.resize(total, 0);
        self.read(&mut bytes[HEADER_BYTES..])?;
        Ok(bytes)
    }

    /// Says that this side can receive, waits until the other can, and gives the connection.
    pub(crate) fn ready(mut self) -> Result<TcpStream, HandshakeError> {
        self.say_ready()?;
        self.hear_ready()?;
        Ok(self.stream)
    }

    /// Says that this side can receive. From then on the other may take the end of the connection for this side's.
    pub(crate) fn say_ready(&mut self) -> Result<(), HandshakeError> {
        self.write(&READY)
    }

    /// Waits until the other side can receive.
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

    fn greet(&mut self, verdict: Verdict, token: &[u8; 16]) -> Result<(), HandshakeError> {
        let mut bytes = [0; GREETING_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6..8].copy_from_slice(&verdict.0.to_le_bytes());
        bytes[8..].copy_from_slice(token);
        self.write(&bytes)
    }

    /// Takes the answer of the one that listens, which has the token too.
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

    /// What is left, for a socket: not 0, which would be for ever.
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

    /// Takes what it has said, and answers it once that is all.
    fn hear(mut self, token: &JobToken, deadline: Deadline) -> Heard {
        match self.listen() {
            Ok(false) => Heard::Waits(self),
            Ok(true) => match self.answer(token, deadline) {
                Ok(met) => Heard::Met(met),
                Err(error) => {
                    tracing::debug!(%error, "a stranger was sent away");
                    Heard::Gone
                }
            },
            Err(error) => {
                tracing::debug!(peer = %self.peer, %error, "a stranger went away");
                Heard::Gone
            }
        }
    }

    /// Takes what it has said; whether that is all of it.
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

    /// Answers it, once it has said all.
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

/// Waits until somebody connects or says something, or a time is over.
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

/// What a greeting of 24 bytes says.
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

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
    )
}

#[cfg(test)]
mod tests;
