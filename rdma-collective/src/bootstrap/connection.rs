//! A connection of the store's server: bytes in, frames out, and the time at which the connection expires.
//!
//! Before a connection has joined, it may send little and for a short time only. The meaning of frames is `serve`'s
//! task.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rdma_core::strangers::Place;
use rustix::event::PollFlags;
use socket2::{SockRef, TcpKeepalive};

use super::frame::{Frame, FrameReader, HEADER_BYTES};
use super::message::{HELLO_BYTES, REQUEST_BYTES_MAX};
use crate::bootstrap::FrameError;

/// Bytes that a refused connection may still send before it is dropped.
const DISCARDED_BYTES_MAX: usize = 4096;

/// A connection that the server accepted.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) from: SocketAddr,
    pub(super) state: State,
    /// The time at which the connection is dropped, unless it makes progress before.
    pub(super) expires: Option<Instant>,
    /// The place among the strangers, until the peer has joined.
    place: Option<Place>,
    reader: FrameReader,
    sending: Option<Sending>,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The peer has not shown the token yet; little is accepted.
    Stranger,
    /// The peer has joined as a rank.
    Member,
    /// The peer was refused. The connection is dropped once the peer has read the reason.
    Refused { discarded: usize },
}

/// A frame that is being sent.
#[derive(Debug)]
struct Sending {
    frame: Frame,
    sent: usize,
}

/// The reason why a connection is dropped.
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
    pub(super) fn new(
        stream: TcpStream,
        from: SocketAddr,
        place: Place,
        expires: Option<Instant>,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            from,
            state: State::Stranger,
            expires,
            place: Some(place),
            reader: FrameReader::new(HELLO_BYTES),
            sending: None,
        })
    }

    /// Accepts requests from now on. Keepalive is set, so that a peer that vanishes without a word is noticed.
    pub(super) fn admit(&mut self) {
        self.state = State::Member;
        self.place = None;
        self.expires = None;
        self.reader.allow(REQUEST_BYTES_MAX);
        notice_vanishing(&self.stream);
    }

    /// The events to poll for. A request is read only after the one before it was answered, so a peer that sends
    /// without reading fills its own socket, not this process's memory.
    pub(super) fn interest(&self, waiting: bool) -> PollFlags {
        let mut flags = PollFlags::RDHUP;
        flags.set(PollFlags::OUT, self.sending.is_some());
        flags.set(PollFlags::IN, self.sending.is_none() && !waiting);
        flags
    }

    /// Reads until a frame is complete or no bytes are left. Never reads beyond the frame.
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

    /// Reads and drops the bytes that a refused peer still sends. If a socket is closed over unread bytes, the kernel
    /// resets the connection, and the peer may lose the answer that says why.
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

    /// Whether a part of a frame is still to be sent.
    pub(super) fn is_sending(&self) -> bool {
        self.sending.is_some()
    }

    /// Begins to send a frame; [`Connection::flush`] sends the part that does not fit now.
    pub(super) fn send(&mut self, frame: Frame, until: Option<Instant>) -> Result<(), Dropped> {
        debug_assert!(self.sending.is_none(), "one request at a time has one answer at a time");
        self.sending = Some(Sending { frame, sent: 0 });
        if self.state == State::Member {
            self.expires = until;
        }
        self.flush()
    }

    /// Goes on sending the current frame, if there is one.
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

/// Sets keepalive and user timeout, so that the connection ends within 10 s if the machine at the other end is gone.
pub(crate) fn notice_vanishing(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(4)).with_interval(Duration::from_secs(2));
    // A failure is ignored: without keepalive a lost machine is noticed by deadlines, only later.
    let _ = socket.set_tcp_keepalive(&keepalive.with_retries(3));
    // Keepalive covers an idle connection; this covers bytes that were sent and not acknowledged.
    let _ = socket.set_tcp_user_timeout(Some(Duration::from_secs(10)));
}
