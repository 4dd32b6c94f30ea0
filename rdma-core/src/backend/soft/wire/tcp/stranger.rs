//! Connections that are not, or no longer, of a queue pair: they can do little, and not for long.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::super::{Hello, Sink};
use super::frame::{self, HELLO_BYTES};
use super::link::LinkError;
use super::outflow::Outflow;
use super::socket::{self, Moved};

/// An accepted connection that has not said whose it is, or whose queue pair is not ready yet.
#[derive(Debug)]
pub(super) struct Stranger {
    pub(super) deadline: Instant,
    said: [u8; HELLO_BYTES],
    have: usize,
}

impl Stranger {
    pub(super) fn new(deadline: Instant) -> Self {
        Self { deadline, said: [0; HELLO_BYTES], have: 0 }
    }

    /// Reads on, never beyond the end of the hello, and tells it when it is complete.
    ///
    /// # Errors
    ///
    /// As soon as what was said cannot become a hello.
    pub(super) fn read(&mut self, fd: BorrowedFd<'_>) -> Result<Option<Hello>, LinkError> {
        match socket::receive_into(fd, &mut self.said[self.have..])? {
            Moved::Blocked => return Ok(None),
            Moved::Bytes(0) => return Err(LinkError::Closed),
            Moved::Bytes(n) => self.have += n,
        }
        if self.have < HELLO_BYTES {
            frame::check_hello_begin(&self.said[..self.have])?;
        }
        self.hello()
    }

    /// Its hello, when that is complete.
    pub(super) fn hello(&self) -> Result<Option<Hello>, LinkError> {
        if self.have < HELLO_BYTES {
            return Ok(None);
        }
        Ok(Some(frame::decode_hello(&self.said)?))
    }

    /// Whether it has said all that it may before its queue pair answers.
    pub(super) fn is_complete(&self) -> bool {
        self.have == HELLO_BYTES
    }
}

/// A connection whose queue pair is gone: its last replies are still sent, and then it waits
/// for the peer to close, since closing with bytes of the peer unread may take them away.
#[derive(Debug)]
pub(super) struct Lingering {
    /// Set when the last replies are handed to the socket.
    pub(super) deadline: Option<Instant>,
    pub(super) outflow: Outflow,
}

impl Lingering {
    /// Sends what is left, and then that nothing more comes.
    pub(super) fn write(&mut self, fd: BorrowedFd<'_>, sink: &dyn Sink) -> Result<(), LinkError> {
        // Frames without payload alone: they are few bytes. What the socket does not take is lost.
        self.outflow.write(fd, sink, usize::MAX)?;
        socket::end_sending(fd);
        Ok(())
    }

    /// Reads and forgets; an error when the peer has closed its end.
    pub(super) fn read(&mut self, fd: BorrowedFd<'_>, staging: &mut [u8]) -> Result<(), LinkError> {
        match socket::receive_into(fd, staging)? {
            Moved::Bytes(0) => Err(LinkError::Closed),
            Moved::Bytes(_) | Moved::Blocked => Ok(()),
        }
    }
}
