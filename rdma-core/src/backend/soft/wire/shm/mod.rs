//! Memory shared with a process of the same host, in which the requester's own thread runs the peer's responder.
//!
//! Three kinds of [`Segment`] cross between the two processes:
//!
//! - a [`Mailbox`]: the responder of one queue pair, with its receives, its completions and its sequence number;
//! - the [`KeyTable`] of the peer's device;
//! - the memories that keys name.
//!
//! The *owner* is the process that answers requests. The *writer* is the process that has these segments mapped,
//! through a [`RemoteResponder`], and carries requests out in them.
//! [`engine::responder`](super::super::engine::responder) defines the rules of a reliable connection; nothing here
//! decides otherwise, and the tests compare the two.
//!
//! # Trust
//!
//! Neither side believes what the other wrote. The owner keeps everything it needs back in private memory, such as
//! which receive comes next. Either side compares each value that it reads with its own bounds, or cuts it to them. A
//! peer that lies causes wrong bytes, a wrong length or silence for its own connection, but no access outside of the
//! segments.
//!
//! # Late writes
//!
//! [`writer_slot`] is the protocol between a writer and an owner that revokes a right. Once the owner has seen the
//! slot idle, no byte lands through a deregistered key, nor in a receive of a queue pair that has ended.

mod doorbell;
mod full_fence;
mod key_table;
mod layout;
mod mailbox;
mod map_refused;
mod peer_memories;
mod remote_responder;
pub(in super::super) mod rendezvous;
mod segment;
mod shared_slice;
mod writer_slot;

#[cfg(all(test, not(loom)))]
mod tests;

pub(in super::super) use key_table::{Export, KeyTable, PAUSED_VERSION};
pub(in super::super) use mailbox::{CompletionWatch, Mailbox, Writer};
pub(in super::super) use map_refused::MapRefused;
pub(in super::super) use remote_responder::{
    CopyBudget, CopyProgress, Executed, LocalBuffer, NoAccess, Outcome, RemoteResponder, WRITER_CHUNK,
};
#[cfg(test)]
pub(in super::super) use segment::READ_WRITE;
pub(in super::super) use segment::Segment;
pub(in super::super) use writer_slot::{AccessScope, Chunk};

/// The atomic types of the platform, or loom's in a model.
///
/// Every shared word goes through these aliases, so that the loom models check the same code that runs.
mod atomic {
    #[cfg(all(test, loom))]
    pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    #[cfg(not(all(test, loom)))]
    pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
