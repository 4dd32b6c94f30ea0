//! The mapped wire: a request is carried out here, while it is posted, in memory that the peer's process shares.
//!
//! [`shm`](super::shm) does that; here it is joined to the queue pairs. [`carry`] is the requester's side, past whose send
//! queue [`ahead`] leads, and [`owner`] the responder's; [`host`] is told by the rendezvous who they are connected to.
//!
//! A direction that cannot go on this way, since it comes upon memory that cannot be mapped, goes on over TCP with the next
//! request: all that a responder is made of goes back from the mailbox to where TCP finds it.

mod access;
mod bypass;
mod rendezvous_host;
mod requester;
mod responder;
mod revoke;
#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

pub(in super::super) use bypass::BypassProgress;
pub(in super::super) use responder::OrphanMailbox;
pub(in super::super) use revoke::RevokeStatus;

use super::shm::rendezvous::UnmappedReason;
use super::shm::{Mailbox, RemoteResponder, Segment};

/// What a requester was given by its peer.
#[derive(Debug)]
pub(in super::super) struct Outgoing {
    responder: RemoteResponder,
    /// Wakes the peer's thread that sleeps until a completion.
    doorbell: OwnedFd,
}

/// What a responder has given to its peer.
#[derive(Debug)]
pub(in super::super) struct Incoming {
    pub(in super::super) mailbox: Mailbox,
    /// The process that has it (pidfd).
    writer: Arc<OwnedFd>,
    /// Since when it answers no more.
    closed: Option<Instant>,
    /// A serial by which the writer can do no harm any more, though its slot has it.
    detached: Option<u64>,
}

/// Mappings that nobody uses any more. To unmap much takes its time: they go once the lock is let go of.
#[derive(Debug, Default)]
pub(in super::super) struct Discarded {
    outgoing: Vec<Outgoing>,
    memories: Vec<Arc<Segment>>,
}

impl Discarded {
    pub(in super::super) fn outgoing(&mut self, outgoing: Option<Box<Outgoing>>) {
        self.outgoing.extend(outgoing.map(|outgoing| *outgoing));
    }

    fn memory(&mut self, memory: Option<Arc<Segment>>) {
        self.memories.extend(memory);
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.outgoing.is_empty() && self.memories.is_empty()
    }
}

impl Mapped {
    /// The peer was not met, or not any more.
    pub(in super::super) fn note_unmet(&mut self, reason: &UnmappedReason) {
        if !reason.is_departure() && !matches!(reason, UnmappedReason::Busy) {
            self.unmet_reason = Some(reason.to_string());
        }
    }
}

/// The mapped wire's part of a queue pair.
#[derive(Debug, Default)]
pub(in super::super) struct Mapped {
    pub(in super::super) outgoing: Option<Box<Outgoing>>,
    pub(in super::super) incoming: Option<Box<Incoming>>,
    /// A request came upon that memory, which is not mapped yet: what follows it is not sent before it is sent again.
    pub(in super::super) awaited_memory: Option<u64>,
    /// The peer was there, and is not any more.
    pub(in super::super) peer_gone: bool,
    /// Why the peer was not met when it was last tried, if trying again at once is of no use.
    unmet_reason: Option<String>,
    /// The socket is being heard: it need not be looked at for the next memory.
    reading_socket: bool,
    /// The peer's device is of this process; then faults of it are injected.
    pub(in super::super) peer_in_process: bool,
    /// It is about to be destroyed: no peer is let in any more.
    pub(in super::super) destroying: bool,
}
