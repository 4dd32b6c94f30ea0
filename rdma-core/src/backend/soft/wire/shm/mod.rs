//! Memory shared with a process of the same host: the peer's responder is run by the requester's own thread.
//!
//! Three kinds of [`Segment`] cross between the two: a [`Mailbox`], which is the responder of one queue pair
//! (its receives, its completions, where its peer is_current); the [`KeyTable`] of its device; and the memory that
//! keys name. Their *owner* is the side that answers. The *writer* has all of them mapped by a [`RemoteResponder`], and
//! carries out requests there as [`engine::responder`](super::super::engine::responder) says it is done: nothing
//! here decides otherwise, and the tests compare the two.
//!
//! # Trust
//!
//! Neither side believes what it reads. What the owner needs back, such as which receive comes next, it keeps
//! to itself; what either reads is compared with, or cut to, what is mapped. A peer that lies gets wrong bytes,
//! a wrong length or silence, and no access outside of the segments.
//!
//! # Late writes
//!
//! See [`writer_slot`]: nothing is placed by a key after its deregistration, nor into a receive after the
//! queue pair's end, once the owner has seen the slot idle.

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
pub(in super::super) use mailbox::{CompletionWatch, Mailbox, MailboxInit, WaitOutcome, Writer};
pub(in super::super) use map_refused::MapRefused;
pub(in super::super) use remote_responder::{
    AccessOutcome, CopyBudget, CopyProgress, Executed, LocalBuffer, Outcome, RemoteResponder, WRITER_CHUNK,
};
#[cfg(test)]
pub(in super::super) use segment::Protection;
pub(in super::super) use segment::Segment;
pub(in super::super) use writer_slot::{AccessScope, Chunk};

/// The atomics of whoever runs this: models have their own.
mod atomic {
    #[cfg(all(test, loom))]
    pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
    #[cfg(not(all(test, loom)))]
    pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
