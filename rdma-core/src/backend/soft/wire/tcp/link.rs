//! A connection between two queue pairs. Either end may send requests on it, and answers those of the other.
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
use super::held::{HeldAcks, LOOKS_UNASKED};
use super::inflow::{AckUrgency, Inflow};
use super::outflow::Outflow;
use super::socket;

/// Replies that may wait before nothing more is read. The replies to requests that were read already come on top. A
/// peer of this library asks for 16 reads at once, and acknowledgements of its other requests become one: so two such
/// peers never both stop to read.
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
    pub(super) qp: QpRef,
    pub(super) outflow: Outflow,
    pub(super) inflow: Inflow,
    /// The connection is in the list of those to be flushed.
    pub(super) dirty: bool,
    /// The events that epoll watches the socket for.
    pub(super) watched: EventFlags,
    pub(super) acks: LinkAcks,
}

/// The acknowledgements of a connection, as far as they may wait for a request to ride with.
#[derive(Debug, Default)]
pub(super) struct LinkAcks {
    /// An acknowledgement waits in the queue.
    pub(super) held: bool,
    /// The peer has asked for the one that waits.
    pub(super) asked: bool,
    /// The last one went, or could have gone, with a request: so the next one that was asked for is held back, too.
    pub(super) pays: bool,
    /// The look at the sockets that the last one was given in.
    pub(super) given: u64,
}

impl Link {
    /// Makes a connection of `qp`, whose peer has been `greeted` if its hello was read already.
    pub(super) fn new(qp: QpRef, greeted: bool) -> Self {
        Self {
            qp,
            outflow: Outflow::new(),
            inflow: Inflow::new(qp, greeted),
            dirty: false,
            watched: EventFlags::IN,
            acks: LinkAcks::default(),
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
                let answers = self.inflow.is_read_data();
                self.inflow.filled(now, n - staged, sink);
                if answers {
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
        (self.acks.held, self.acks.asked) = (false, false);
        let bytes = self.outflow.write(fd, sink, budget)?;
        // Bytes of replies do not count: a request that was lost must be sent again though the peer is answered.
        if self.outflow.take_moved() {
            sink.moving(now, self.qp);
        }
        Ok(bytes)
    }

    /// Returns for how many looks the acknowledgement of all requests up to `psn` may wait for a request of this end,
    /// to leave with it. `None` if the acknowledgement must leave at once, or if other frames are about to leave.
    pub(super) fn ack_may_wait(&mut self, psn: u32) -> Option<u64> {
        let urgency = self.inflow.ack_urgency(psn);
        let looks = match urgency {
            AckUrgency::Unasked => LOOKS_UNASKED,
            AckUrgency::WithAnswer if self.acks.pays => HeldAcks::LOOKS_IF_ASKED,
            AckUrgency::WithAnswer | AckUrgency::AtOnce => return None,
        };
        let waits = !self.dirty && !self.watched.contains(EventFlags::OUT);
        self.acks.asked |= waits && urgency != AckUrgency::Unasked;
        waits.then_some(looks)
    }

    /// Returns the events that epoll must watch the socket for.
    ///
    /// A peer that sends requests and does not read the replies is not read until it does: that bounds the replies
    /// that wait.
    pub(super) fn wanted(&self) -> EventFlags {
        let mut events = EventFlags::empty();
        events.set(EventFlags::OUT, !self.outflow.is_empty());
        events.set(EventFlags::IN, self.outflow.replies() < REPLIES_MAX);
        events
    }
}
