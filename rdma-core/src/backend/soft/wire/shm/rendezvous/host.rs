//! The interface between the rendezvous and the state of all queue pairs.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use super::super::super::{DeviceRef, Hello, QpRef};
use super::super::{MapRefused, segment::Segment};
use super::frame::Refusal;
use super::unmapped_reason::UnmappedReason;
use crate::memory::Patch;

/// A memory that keys of a device name, announced so that peers map it.
#[derive(Debug, Clone)]
pub(crate) struct Announcement {
    /// Identifier that no other memory of this process ever has.
    pub(crate) id: u64,
    /// Length of the memfd in bytes.
    pub(crate) len: u64,
    pub(crate) memfd: Arc<OwnedFd>,
    /// Pages that are no longer those of the memfd, in the order of their versions.
    pub(crate) patches: Vec<Patch>,
}

/// A change of the memories that a device shares, of which all its writers are told.
#[derive(Debug)]
pub(crate) enum Change {
    /// The writers may map a memory.
    Announce(Announcement),
    /// Pages of the memory were replaced.
    Patch { id: u64, patches: Vec<Patch> },
    /// No pages of the memory were replaced: writers stop waiting for it.
    Resume(u64),
    /// No key names the memory any more: writers unmap it.
    Forget(u64),
}

/// The descriptors and memories that a peer's requester needs to run a responder of this process.
#[derive(Debug)]
pub(crate) struct Invitation {
    /// The mailbox's memfd and its length in bytes.
    pub(crate) mailbox: (OwnedFd, u64),
    /// The key table's memfd and its length in bytes.
    pub(crate) keys: (OwnedFd, u64),
    pub(crate) doorbell: OwnedFd,
    pub(crate) memories: Vec<Announcement>,
}

/// The mapped segments that a requester of this process received.
#[derive(Debug)]
pub(crate) struct AcceptedInvitation {
    pub(crate) mailbox: Segment,
    pub(crate) keys: Segment,
    pub(crate) doorbell: OwnedFd,
}

/// The state of all queue pairs, as the rendezvous sees it. None of these calls reaches back into the rendezvous, so
/// both may be behind one lock.
pub(crate) trait Host {
    /// Whether the device has another wire, which needs descriptors too.
    fn has_other_wire(&self, device: DeviceRef) -> bool;

    /// Finds the responder that a peer's requester wants to write to. `None` unless it is in RTR or RTS and connected
    /// to exactly that source.
    fn accept(&mut self, hello: &Hello) -> Option<QpRef>;

    /// Creates the invitation of the requester of `qp`'s peer, whose process is `writer` (a pidfd).
    ///
    /// # Errors
    ///
    /// The requester must take another wire, for that reason.
    fn invite(&mut self, qp: QpRef, writer: Arc<OwnedFd>) -> Result<Invitation, Refusal>;

    /// Reports that the requester of `qp` was invited and may write from now on.
    ///
    /// # Errors
    ///
    /// The segments are of no use; the connection is closed then.
    fn invited(&mut self, now: Instant, qp: QpRef, invited: AcceptedInvitation)
    -> Result<(), UnmappedReason>;

    /// Returns the mapping that another queue pair has of this memory of the peer, so that one memory is mapped once.
    fn existing_mapping(&mut self, qp: QpRef, id: u64) -> Option<Arc<Segment>>;

    /// Adds a memory of the peer of `qp`'s requester, in place of one with the same identifier.
    fn add_memory(&mut self, now: Instant, qp: QpRef, id: u64, memory: Arc<Segment>);

    /// Maps replacement pages of a memory that was announced.
    ///
    /// # Errors
    ///
    /// The pages cannot be mapped; the connection is closed then.
    fn patch_memory(&mut self, now: Instant, qp: QpRef, id: u64, patch: &Patch) -> Result<(), MapRefused>;

    /// Reports that pages of a memory are not replaced after all: a request that waits for the next version must try
    /// again.
    fn resume_memory(&mut self, now: Instant, qp: QpRef, id: u64);

    /// Reports that no key of the peer names that memory any more.
    fn forget_memory(&mut self, now: Instant, qp: QpRef, id: u64);

    /// Reports that the peer's requester left something in the mailbox of `qp`.
    fn nudged(&mut self, now: Instant, qp: QpRef);

    /// Reports that the connection of `qp`'s requester, or the peer's process, has ended. Not called for connections
    /// that this side closed.
    fn requester_closed(&mut self, now: Instant, qp: QpRef, reason: UnmappedReason);

    /// Reports that the connection on which the requester of `qp`'s peer was invited has ended.
    fn responder_closed(&mut self, now: Instant, qp: QpRef, reason: &UnmappedReason);
}
