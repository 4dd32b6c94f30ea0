//! Two processes that meet over one TCP connection: the job's token first, then blobs, then a word that both can receive.
//!
//! Whoever has no token is answered in 24 bytes and costs one connection; nothing of it is used. What the blobs hold is
//! the users' of the link, and so is the connection afterwards: it ends when its process does.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::blob::{BLOB_BYTES_MAX, HEADER_BYTES, total_bytes};
use crate::comm::bootstrap::JobToken;
use crate::error::HandshakeError;

/// What every greeting begins with.
const MAGIC: [u8; 4] = *b"RDMH";
/// The version of the greeting and of what follows it.
const VERSION: u16 = 1;
/// Magic, version, verdict, token.
const GREETING_BYTES: usize = 24;
/// How long one that has connected may take to say who it is.
const GREETING_WITHIN: Duration = Duration::from_secs(2);
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
    loop {
        if !readable(listener, deadline).map_err(failed)? {
            return Err(HandshakeError::NobodyCame { waited: started.elapsed() });
        }
        let (stream, peer) = match listener.accept() {
            Ok(accepted) => accepted,
            // It went away again, or another thread was faster.
            Err(error) if is_passing(&error) => continue,
            Err(source) => return Err(failed(source)),
        };
        let mut met = Met { stream, peer, deadline: deadline.min(Deadline::after(GREETING_WITHIN)) };
        match met.welcome(token) {
            Ok(()) => {
                met.deadline = deadline;
                return Ok(met);
            }
            Err(error) => tracing::debug!(%peer, %error, "a stranger was sent away"),
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
                met.greet(Verdict::WELCOME, token.as_bytes())?;
                met.be_welcomed(token)?;
                return Ok(met);
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
        self.write(&READY)?;
        let mut word = [0; READY.len()];
        self.read(&mut word)?;
        if word != READY {
            return Err(HandshakeError::Garbage { peer: self.peer });
        }
        Ok(self.stream)
    }

    fn greet(&mut self, verdict: Verdict, token: &[u8; 16]) -> Result<(), HandshakeError> {
        let mut bytes = [0; GREETING_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6..8].copy_from_slice(&verdict.0.to_le_bytes());
        bytes[8..].copy_from_slice(token);
        self.write(&bytes)
    }

    fn greeting(&mut self) -> Result<(Verdict, JobToken), HandshakeError> {
        let mut bytes = [0; GREETING_BYTES];
        self.read(&mut bytes)?;
        let [m0, m1, m2, m3, v0, v1, c0, c1, token @ ..] = bytes;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(HandshakeError::Garbage { peer: self.peer });
        }
        let theirs = u16::from_le_bytes([v0, v1]);
        if theirs != VERSION {
            return Err(HandshakeError::OtherVersion { peer: self.peer, ours: VERSION, theirs });
        }
        Ok((Verdict(u16::from_le_bytes([c0, c1])), JobToken::from_bytes(token)))
    }

    /// Answers one that has connected.
    fn welcome(&mut self, token: &JobToken) -> Result<(), HandshakeError> {
        let (_, theirs) = self.greeting()?;
        if theirs != *token {
            self.greet(Verdict::OTHER_TOKEN, &[0; 16])?;
            return Err(HandshakeError::OtherToken { peer: self.peer });
        }
        self.greet(Verdict::WELCOME, token.as_bytes())
    }

    /// Takes the answer of the one that listens, which has the token too.
    fn be_welcomed(&mut self, token: &JobToken) -> Result<(), HandshakeError> {
        match self.greeting()? {
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

/// Whether somebody connects before the deadline.
fn readable(listener: &TcpListener, deadline: Deadline) -> io::Result<bool> {
    loop {
        let remaining = deadline.remaining();
        let timeout =
            Timespec { tv_sec: remaining.as_secs() as i64, tv_nsec: remaining.subsec_nanos().into() };
        match poll(&mut [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)], Some(&timeout)) {
            Ok(0) if deadline.expired() => return Ok(false),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
    )
}

#[cfg(test)]
mod tests;
