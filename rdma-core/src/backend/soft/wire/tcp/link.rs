//! A connection between a requester and a responder, whichever end is here.
//!
//! The link joins both halves to a socket, and keeps the byte budget of one hold of the lock. [`Tcp`](super::Tcp)
//! makes, names and closes connections.

#![expect(unsafe_code, reason = "hands the range of a placement to the kernel")]

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::epoll::EventFlags;

use super::super::{QpRef, Sink};
use super::frame::FrameError;
use super::inflow::{Inflow, Role};
use super::outflow::Outflow;
use super::socket;

/// Replies that may wait before no further request is read. The replies to requests that were read already come on
/// top.
const REPLIES_MAX: usize = 64;

/// Why a connection has ended. The requester learns nothing of it: a lost connection is silence, and its timer
/// decides.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("the peer closed the connection")]
    Closed,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("a payload was revoked while its frame was partly sent")]
    Revoked,
    #[error("too many frames wait to be sent")]
    TooManyFrames,
    #[error("the peer, or the queue pair that it names, was not ready in time")]
    Overdue,
    #[error("too many newer connections wait")]
    Crowded,
}

/// A connection of a queue pair.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) role: Role,
    pub(super) qp: QpRef,
    pub(super) outflow: Outflow,
    inflow: Inflow,
    /// The connection is in the list of those to be flushed.
    pub(super) dirty: bool,
    /// The events that epoll watches the socket for.
    pub(super) watched: EventFlags,
}

impl Link {
    pub(super) fn new(role: Role, qp: QpRef) -> Self {
        Self {
            role,
            qp,
            outflow: Outflow::new(),
            inflow: Inflow::new(role, qp),
            dirty: false,
            watched: EventFlags::IN,
        }
    }

    /// Receives at most `budget` bytes, of which at most `staging.len()` go through `staging`, and delivers them.
    /// Returns how many came.
    ///
    /// The limits bound the messages of one call, and with them the replies. Bytes may be left in the socket: epoll
    /// then reports it again.
    pub(super) fn read(
        &mut self,
        now: Instant,
        fd: BorrowedFd<'_>,
        sink: &mut dyn Sink,
        staging: &mut [u8],
        budget: usize,
    ) -> Result<usize, LinkError> {
        let (mut bytes, mut small) = (0, 0);
        while bytes < budget && small < staging.len() {
            let (addr, direct) = self.inflow.direct(sink, budget - bytes).unwrap_or((0, 0));
            let beyond = self.inflow.beyond(direct, (staging.len() - small).min(budget - bytes - direct));
            let base = std::ptr::with_exposed_provenance_mut::<u8>(addr as usize);
            let target = libc::iovec { iov_base: base.cast(), iov_len: direct };
            // SAFETY: the state confirmed just now that the range may be written while the lock is held, and whoever
            // has a `&mut dyn Sink` holds it. No reference is ever made to memory that peers may write, nor to owned
            // buffers while a request has them, so no reference is invalidated.
            let received = unsafe { socket::receive(fd, target, &mut staging[..beyond]) };
            let Some(n) = received? else { break };
            bytes += n;
            let staged = n.saturating_sub(direct);
            small += staged;
            if direct > 0 {
                self.inflow.filled(now, n - staged, sink);
                if self.role == Role::Requester {
                    sink.moving(now, self.qp);
                }
            }
            self.inflow.feed(now, &staging[..staged], sink)?;
            if n < direct + beyond {
                break;
            }
        }
        Ok(bytes)
    }

    /// Sends at most `budget` bytes of the queued frames.
    pub(super) fn write(
        &mut self,
        now: Instant,
        fd: BorrowedFd<'_>,
        sink: &mut dyn Sink,
        budget: usize,
    ) -> Result<usize, LinkError> {
        let bytes = self.outflow.write(fd, sink, budget)?;
        if bytes > 0 && self.role == Role::Requester {
            sink.moving(now, self.qp);
        }
        Ok(bytes)
    }

    /// Returns the events that epoll must watch the socket for.
    ///
    /// A peer that sends requests and does not read the replies is not read until it does: that bounds the replies
    /// that wait.
    pub(super) fn wanted(&self) -> EventFlags {
        let mut events = EventFlags::empty();
        events.set(EventFlags::OUT, self.outflow.len() > 0);
        events.set(EventFlags::IN, self.role == Role::Requester || self.outflow.len() < REPLIES_MAX);
        events
    }
}
