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

mod strangers;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::blob::{BLOB_BYTES_MAX, HEADER_BYTES, total_bytes};
use crate::bootstrap::JobToken;
use crate::link::HandshakeError;

pub(crate) use strangers::{First, Strangers};

/// The first bytes of every greeting.
const MAGIC: [u8; 4] = *b"RDMH";
/// The version of the greeting and of what follows it.
const VERSION: u16 = 1;
/// Bytes of a greeting: magic (4), version (2), verdict (2), token (16).
const GREETING_BYTES: usize = 24;
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
        Meet::Accept(listener) => accept(listener, token, First::Token, deadline).map(|(met, _)| met),
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
        Meet::Accept(listener) => return accept(listener, token, First::Blob(blob), deadline),
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

/// Accepts connections until one has shown the job's token, and said what is to come `first`.
fn accept(
    listener: &TcpListener,
    token: &JobToken,
    first: First<'_>,
    deadline: Deadline,
) -> Result<(Met, Vec<u8>), HandshakeError> {
    let failed = |source| HandshakeError::Listen { source };
    let started = Instant::now();
    // Non-blocking, because another thread may accept the connection that this one was woken for: a blocking accept
    // would then wait beyond the deadline.
    listener.set_nonblocking(true).map_err(failed)?;
    let mut strangers = Strangers::default();
    loop {
        strangers.dismiss_overdue();
        if deadline.expired() {
            return Err(HandshakeError::NobodyCame { waited: started.elapsed() });
        }
        strangers.wait(listener, deadline).map_err(failed)?;
        if let Some(met) = strangers.look(listener, token, first, deadline).map_err(failed)? {
            return Ok(met);
        }
    }
}

/// Connects to a process of the job with `token`, which listens at `address` or will before the deadline.
pub(crate) fn connect(
    address: SocketAddr,
    token: &JobToken,
    deadline: Deadline,
) -> Result<Met, HandshakeError> {
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
        self.say(blob)?;
        self.hear()
    }

    /// Sends a blob.
    pub(crate) fn say(&mut self, blob: &[u8]) -> Result<(), HandshakeError> {
        self.write(blob)
    }

    /// Receives a blob, whatever is in it.
    pub(crate) fn hear(&mut self) -> Result<Vec<u8>, HandshakeError> {
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

    /// Moves the deadline of all that is still said and heard.
    pub(crate) fn until(self, deadline: Deadline) -> Self {
        Self { deadline, ..self }
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
