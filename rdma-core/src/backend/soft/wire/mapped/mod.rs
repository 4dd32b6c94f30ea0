//! The mapped wire: requests are carried out while they are posted, in memory that the peer's process shares.
//!
//! [`shm`](super::shm) carries requests out; this folder joins it to the queue pairs. [`requester`] is the
//! requester's side, and [`bypass`] its path past the send queue. [`own_mailboxes`] has the mailboxes of this process,
//! [`revoke`] takes rights back from their writers, and [`rendezvous_host`] answers the rendezvous.
//!
//! A direction that comes upon memory that cannot be mapped goes on over TCP, from the next request on. The receives
//! and the sequence number then return from the mailbox to the responder that TCP uses.

mod access;
mod bypass;
mod own_mailboxes;
mod rendezvous_host;
mod requester;
mod revoke;
#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

pub(in super::super) use bypass::BypassProgress;
pub(in super::super) use own_mailboxes::OrphanMailbox;
pub(in super::super) use revoke::RevokeStatus;

use super::shm::{Mailbox, RemoteResponder, Segment};

/// The mapped responder of a peer, as its requester received it.
#[derive(Debug)]
pub(in super::super) struct Outgoing {
    responder: RemoteResponder,
    /// Eventfd that wakes the peer's thread when it sleeps until a completion.
    doorbell: OwnedFd,
}

/// A mailbox of this process, with its writer.
#[derive(Debug)]
pub(in super::super) struct Incoming {
    pub(in super::super) mailbox: Mailbox,
    /// Pidfd of the writer's process.
    writer: Arc<OwnedFd>,
    /// Time at which the mailbox was closed. A writer gets [`GRACE`](own_mailboxes::GRACE) from then on.
    closed: Option<Instant>,
    /// Serial of an announcement that does not count any more: the pages that its writer has were replaced, so what
    /// it still writes reaches nobody.
    detached: Option<u64>,
}

/// Mappings that are not used any more. They are dropped after the lock is released, because unmapping large memory
/// takes milliseconds.
#[derive(Debug, Default)]
pub(in super::super) struct Discarded {
    outgoing: Vec<Outgoing>,
    memories: Vec<Arc<Segment>>,
}

impl Discarded {
    pub(in super::super) fn outgoing(&mut self, outgoing: Option<Box<Outgoing>>) {
        self.outgoing.extend(outgoing.map(|outgoing| *outgoing));
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.outgoing.is_empty() && self.memories.is_empty()
    }
}

/// The mapped wire's part of a queue pair.
#[derive(Debug, Default)]
pub(in super::super) struct MappedState {
    pub(in super::super) outgoing: Option<Box<Outgoing>>,
    pub(in super::super) incoming: Option<Box<Incoming>>,
    /// The memory that a request needs and that is not mapped yet. Nothing is sent until it is, because later
    /// requests must not overtake that one.
    pub(in super::super) awaited_memory: Option<u64>,
    /// The peer was mapped, and is gone.
    pub(in super::super) peer_gone: bool,
    /// Why the last attempt to meet the peer failed, if trying again at once is of no use.
    unmet_reason: Option<String>,
    /// The rendezvous socket is being read by a caller further up, so it must not be read again for the next memory.
    reading_socket: bool,
    /// The peer's device is in this process: its injected faults must be applied here.
    pub(in super::super) peer_in_process: bool,
    /// The queue pair is about to be destroyed: no peer is admitted any more.
    pub(in super::super) destroying: bool,
}
