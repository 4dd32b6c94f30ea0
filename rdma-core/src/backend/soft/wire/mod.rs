//! The wires: how messages reach the peer's queue pair. By a copy inside this process ([`local`]), in memory shared
//! with another process ([`mapped`], [`shm`]), or over TCP ([`tcp`]).
//!
//! The engine asks for effects; a wire carries them out. This file has what a wire may do to the state ([`Sink`]);
//! [`Tcp`] has what the state may ask of the sockets. Everything here happens under the fabric's one lock.
//!
//! # Memory
//!
//! Every address that crosses this boundary comes with a [`Token`]. A wire may read or write behind an address only
//! while it holds the lock, and only after [`Sink::still_valid`] confirmed the token since the lock was last taken. A
//! wire that waits for a peer releases the lock after at most [`HOLD_BYTES_MAX`] bytes, and headers. That makes
//! deregistration and destruction exact: they take the same lock, and afterwards no token of theirs is valid.

mod accepting;
mod deliver;
mod fields;
mod local;
mod log_throttle;
mod mapped;
mod shm;
mod tcp;

#[cfg(fuzzing)]
pub(crate) use {shm::rendezvous::fuzz as rendezvous_fuzz, tcp::fuzz};

use std::time::Instant;

pub(super) use local::copy;
pub(super) use mapped::{BypassProgress, Discarded, MappedState, OrphanMailbox, RevokeStatus};
pub(super) use shm::rendezvous::{self, Announcement, Change, Rendezvous, UnmappedReason};
pub(super) use shm::{
    Chunk, CompletionWatch, Export, KeyTable as MappedKeys, PAUSED_VERSION, Segment, WRITER_CHUNK,
};

use super::engine::message::{Reply, Request};
use crate::{Gid, QpNum};

pub(super) use tcp::{HeldAcks, Tcp};

slotmap::new_key_type! {
    /// Names a queue pair of this process. The key of a destroyed queue pair is never given to a later one.
    pub(crate) struct QpRef;
    /// Names an open software device of this process.
    pub(crate) struct DeviceRef;
}

/// Bytes that a wire moves before it lets others have the lock: 256 KiB, some ten microseconds. Without shared
/// memory, a message inside a process is one copy whatever its length, and so is a message between processes that has
/// waited in the send queue.
pub(crate) const HOLD_BYTES_MAX: usize = 256 << 10;

/// The right to use one range of memory until it is revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) qp: QpRef,
    pub(crate) right: Right,
}

/// The kind of object that a [`Token`] depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    /// A send-queue request that has not completed: its payload, or the target of a read.
    Requested { serial: u64 },
    /// The placement that a responder has in progress, into a registration or a receive.
    Placing { serial: u64 },
    /// The copy of a message that a fault holds back.
    Delayed { serial: u64 },
    /// A registration that a read is answered from.
    Answering { key: u32, serial: u64 },
}

/// A range of bytes to send, or the target of those that arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Payload {
    pub(crate) token: Token,
    pub(crate) addr: u64,
    pub(crate) len: u32,
}

/// The two queue pairs of a connection; the first frame on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) source_gid: Gid,
    pub(crate) source_qp: QpNum,
    pub(crate) destination_gid: Gid,
    pub(crate) destination_qp: QpNum,
}

/// The state of all queue pairs, as a wire sees it.
///
/// None of these calls reaches back into the wire, because the wire is borrowed while it delivers. Whatever they
/// cause to be sent is handed to [`Tcp`] right after the call has returned.
pub(crate) trait Sink {
    /// Finds the responder for a connection from a peer's requester. `None` unless the destination is in RTR or RTS
    /// and connected to exactly that source.
    fn accept(&mut self, hello: &Hello) -> Option<QpRef>;

    /// Delivers a request to the responder of `qp`, and returns where its payload goes: write it there, then call
    /// [`placed`](Self::placed). `None` if no payload follows, or if it must be taken off the wire and dropped.
    fn request(&mut self, now: Instant, qp: QpRef, request: &Request) -> Option<Payload>;

    /// Delivers a reply to the requester of `qp`, and returns where its payload goes, as for a request.
    fn reply(&mut self, now: Instant, qp: QpRef, reply: &Reply) -> Option<Payload>;

    /// Reports that the payload of the last message is complete. Call it also when the token became invalid and the
    /// rest was discarded, because the refusal is decided here.
    fn placed(&mut self, now: Instant, token: Token);

    /// Whether the memory behind `token` may still be used, in this hold of the lock.
    fn still_valid(&self, token: Token) -> bool;

    /// Whether the request behind `token` was carried out. Its retransmission may then have any bytes, because the
    /// peer drops it.
    fn carried_out(&self, token: Token) -> bool;

    /// Reports that bytes of `qp`'s requests are moving: the acknowledgement timer starts again.
    fn moving(&mut self, now: Instant, qp: QpRef);
}
