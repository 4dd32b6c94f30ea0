//! What the rendezvous asks of the state of all queue pairs, and tells it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use super::super::super::{DeviceRef, Hello, QpRef};
use super::super::{MapRefused, segment::Segment};
use super::frame::Refusal;
use super::unmapped_reason::UnmappedReason;
use crate::memory::Patch;

/// Memory that keys of a device name, to be mapped by its peers.
#[derive(Debug, Clone)]
pub(crate) struct Announcement {
    /// Never that of other memory of this process.
    pub(crate) id: u64,
    /// All bytes of the memfd.
    pub(crate) len: u64,
    pub(crate) memfd: Arc<OwnedFd>,
    /// Pages of it that are not the memfd's any more.
    pub(crate) patches: Vec<Patch>,
}

/// What a peer's requester is given, to run a responder of this process.
#[derive(Debug)]
pub(crate) struct Invitation {
    /// With its bytes.
    pub(crate) mailbox: (OwnedFd, u64),
    /// With its bytes.
    pub(crate) keys: (OwnedFd, u64),
    pub(crate) doorbell: OwnedFd,
    pub(crate) memories: Vec<Announcement>,
}

/// What a requester of this process was given.
#[derive(Debug)]
pub(crate) struct AcceptedInvitation {
    pub(crate) mailbox: Segment,
    pub(crate) keys: Segment,
    pub(crate) doorbell: OwnedFd,
}

/// See the module. None of these calls reaches back into the rendezvous.
pub(crate) trait Host {
    /// Whether the device has another wire, which needs descriptors, too.
    fn has_other_wire(&self, device: DeviceRef) -> bool;

    /// A peer's requester wants to write. `None` unless the destination is in RTR or RTS and connected to exactly that
    /// source.
    fn accept(&mut self, hello: &Hello) -> Option<QpRef>;

    /// What the requester of `qp`'s peer is given; `writer` is its process (pidfd).
    ///
    /// # Errors
    ///
    /// Why it has to take another wire.
    fn invite(&mut self, qp: QpRef, writer: Arc<OwnedFd>) -> Result<Invitation, Refusal>;

    /// The requester of `qp` may write from now on, to what `memory` tells.
    ///
    /// # Errors
    ///
    /// When it cannot make use of that; the connection is closed then.
    fn invited(&mut self, now: Instant, qp: QpRef, invited: AcceptedInvitation)
    -> Result<(), UnmappedReason>;

    /// Memory of the peer of `qp`'s requester, if another queue pair has it mapped already.
    fn existing_mapping(&mut self, qp: QpRef, id: u64) -> Option<Arc<Segment>>;

    /// Memory of the peer of `qp`'s requester; in place of what had that identifier before.
    fn add_memory(&mut self, now: Instant, qp: QpRef, id: u64, memory: Arc<Segment>);

    /// Other pages of memory that it was told of.
    ///
    /// # Errors
    ///
    /// When they cannot be mapped; the connection is closed then.
    fn patch_memory(&mut self, now: Instant, qp: QpRef, id: u64, patch: &Patch) -> Result<(), MapRefused>;

    /// Its keys name pages that it was told of; it may have found them naming others, which do not come.
    fn resume_memory(&mut self, now: Instant, qp: QpRef, id: u64);

    /// No key of the peer names that memory any more.
    fn forget_memory(&mut self, now: Instant, qp: QpRef, id: u64);

    /// The peer's requester says that there is something to look at in the mailbox of `qp`.
    fn nudged(&mut self, now: Instant, qp: QpRef);

    /// The connection of `qp`'s requester is over, or the peer's process is. Not told of one that was closed here.
    fn requester_closed(&mut self, now: Instant, qp: QpRef, reason: UnmappedReason);

    /// The connection that the requester of `qp`'s peer was invited on is over, for that reason.
    fn responder_closed(&mut self, now: Instant, qp: QpRef, reason: &UnmappedReason);
}
