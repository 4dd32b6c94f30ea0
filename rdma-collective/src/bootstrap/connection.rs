//! One connection of the store's server: bytes in, frames out, and the time until which it may go on.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use socket2::{SockRef, TcpKeepalive};

use super::frame::{Frame, FrameReader, HEADER_BYTES};
use super::message::{HELLO_BYTES, REQUEST_BYTES_MAX};
use crate::bootstrap::FrameError;

/// What a refused connection may still send before it is dropped.
const DISCARDED_BYTES_MAX: usize = 4096;

/// A connection that the server accepted.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) from: SocketAddr,
    pub(super) state: State,
    /// When it is dropped, unless it gets on before.
    pub(super) expires: Option<Instant>,
    reader: FrameReader,
    sending: Option<Sending>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing is known of it, and little is accepted.
    Stranger,
    /// It has joined.
    Member,
    /// It was refused, and is dropped when it has read why.
    Refused { discarded: usize },
}

#[derive(Debug)]
struct Sending {
    frame: Frame,
    sent: usize,
}

/// Why a connection is dropped.
#[derive(Debug, thiserror::Error)]
pub(super) enum Dropped {
    #[error("closed by the peer")]
    Closed,
    #[error("too slow")]
    Expired,
    #[error(transparent)]
    Io(io::Error),
    #[error(transparent)]
    Frame(FrameError),
}

impl Connection {
    pub(super) fn new(stream: TcpStream, from: SocketAddr, expires: Option<Instant>) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            from,
            state: State::Stranger,
            expires,
            reader: FrameReader::new(HELLO_BYTES),
            sending: None,
        })
    }

    /// From now on requests are accepted, and a peer that vanishes without a word is noticed.
    pub(super) fn admit(&mut self) {
        self.state = State::Member;
        self.expires = None;
        self.reader.allow(REQUEST_BYTES_MAX);
        notice_vanishing(&self.stream);
    }

    /// What to wait for; a request is read only when the one before it is answered.
    pub(super) fn interest(&self, waiting: bool) -> PollFlags {
        let mut flags = PollFlags::RDHUP;
        flags.set(PollFlags::OUT, self.sending.is_some());
        flags.set(PollFlags::IN, self.sending.is_none() && !waiting);
        flags
    }

    /// Reads on until a frame is there or there is nothing to read; never beyond the frame.
    pub(super) fn receive(&mut self, until: Option<Instant>) -> Result<Option<Frame>, Dropped> {
        let mut buffer = [0; 8192];
        loop {
            let len = self.reader.wanted().min(buffer.len());
            let read = match self.stream.read(&mut buffer[..len]) {
                Ok(0) => return Err(Dropped::Closed),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(Dropped::Io(error)),
            };
            if self.state == State::Member && !self.reader.is_partial() {
                self.expires = until;
            }
            if let Some(frame) = self.reader.push(&buffer[..read]).map_err(Dropped::Frame)? {
                if self.state == State::Member {
                    self.expires = None;
                }
                return Ok(Some(frame));
            }
        }
    }

    /// Reads what a refused peer still sends: a socket closed over unread bytes takes its answer back.
    pub(super) fn discard(&mut self) -> Result<(), Dropped> {
        let mut buffer = [0; 256];
        let State::Refused { discarded } = &mut self.state else { return Ok(()) };
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(Dropped::Closed),
                Ok(read) => *discarded += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(Dropped::Io(error)),
            }
            if *discarded > DISCARDED_BYTES_MAX {
                return Err(Dropped::Closed);
            }
        }
    }

    /// Sends a frame, now as far as possible and the rest by [`Connection::flush`].
    pub(super) fn send(&mut self, frame: Frame, until: Option<Instant>) -> Result<(), Dropped> {
        debug_assert!(self.sending.is_none(), "one request at a time has one answer at a time");
        self.sending = Some(Sending { frame, sent: 0 });
        if self.state == State::Member {
            self.expires = until;
        }
        self.flush()
    }

    pub(super) fn flush(&mut self) -> Result<(), Dropped> {
        while let Some(Sending { frame, sent }) = &mut self.sending {
            let header = frame.header();
            let rest = match header.get(*sent..) {
                Some(rest) if !rest.is_empty() => rest,
                _ => frame.payload.get(*sent - HEADER_BYTES..).unwrap_or_default(),
            };
            if rest.is_empty() {
                self.sending = None;
                break;
            }
            match self.stream.write(rest) {
                Ok(0) => return Err(Dropped::Closed),
                Ok(written) => *sent += written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(Dropped::Io(error)),
            }
        }
        match self.state {
            State::Member => self.expires = None,
            State::Refused { .. } => self.stream.shutdown(Shutdown::Write).map_err(Dropped::Io)?,
            State::Stranger => {}
        }
        Ok(())
    }
}

/// A machine at the other end that is gone without a word ends the connection, within 10 s.
pub(super) fn notice_vanishing(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(4)).with_interval(Duration::from_secs(2));
    // Without it deadlines tell, later: not worth refusing a peer.
    let _ = socket.set_tcp_keepalive(&keepalive.with_retries(3));
    // Of what was sent and is not acknowledged.
    let _ = socket.set_tcp_user_timeout(Some(Duration::from_secs(10)));
}
