//! Connections without a queue pair, at their beginning or at their end. They can do little, and not for long.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::super::Hello;
use super::frame::{self, HELLO_BYTES};
use super::link::LinkError;
use super::outflow::Outflow;
use super::socket;
use crate::strangers::Place;

/// An accepted connection that has not sent its hello, or whose queue pair is not ready yet.
#[derive(Debug)]
pub(super) struct Stranger {
    pub(super) deadline: Instant,
    said: [u8; HELLO_BYTES],
    have: usize,
    _place: Place,
}

impl Stranger {
    pub(super) fn new(deadline: Instant, place: Place) -> Self {
        Self { deadline, said: [0; HELLO_BYTES], have: 0, _place: place }
    }

    /// Reads on, never beyond the end of the hello, and returns the hello once it is complete. The bytes behind it
    /// belong to the queue pair's receiver.
    ///
    /// # Errors
    ///
    /// The bytes so far cannot become a hello.
    pub(super) fn read(&mut self, fd: BorrowedFd<'_>) -> Result<Option<Hello>, LinkError> {
        let Some(n) = socket::receive_into(fd, &mut self.said[self.have..])? else { return Ok(None) };
        self.have += n;
        if self.have < HELLO_BYTES {
            frame::check_hello_begin(&self.said[..self.have])?;
        }
        self.hello()
    }

    /// Returns the hello once it is complete.
    pub(super) fn hello(&self) -> Result<Option<Hello>, LinkError> {
        if self.have < HELLO_BYTES {
            return Ok(None);
        }
        Ok(Some(frame::decode_hello(&self.said)?))
    }

    /// Whether the hello is complete. A stranger may say nothing more before its queue pair answers.
    pub(super) fn is_complete(&self) -> bool {
        self.have == HELLO_BYTES
    }
}

/// A connection whose queue pair is gone. Its last replies are still sent, and then it waits for the peer to close:
/// closing a socket with unread bytes sends a reset, which may destroy replies that the peer has not read.
#[derive(Debug)]
pub(super) struct Lingering {
    /// Time at which the connection is closed; set once the last replies were handed to the socket.
    pub(super) deadline: Option<Instant>,
    pub(super) outflow: Outflow,
}
