//! How messages reach the peer's queue pair: by a copy inside this process, in memory shared with another, or over TCP.
//!
//! The engine asks for effects; a wire carries them out. What both agree on is here: what a
//! wire may do to the state ([`Sink`]), and what the state may ask of sockets ([`Sockets`]).
//! Everything here happens under the fabric's one lock.
//!
//! # Memory
//!
//! Every address that crosses this boundary comes with a [`Token`]. A wire may read or write
//! behind an address only while it holds the lock, and only after [`Sink::still_valid`] said so
//! of its token since the lock was last taken; one that waits for a peer gives the lock back after
//! at most [`HOLD_BYTES_MAX`] bytes. That is what makes deregistration and destruction exact: they take
//! the same lock, and no token of theirs is valid afterwards.

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
pub(super) use mapped::{BypassProgress, Discarded, Mapped, OrphanMailbox, RevokeStatus};
pub(super) use shm::rendezvous::{self, Announcement, Rendezvous, UnmappedReason};
pub(super) use shm::{
    Chunk, CompletionWatch, Export, KeyTable as MappedKeys, PAUSED_VERSION, Segment, WRITER_CHUNK,
};

use super::engine::message::{Reply, Request};
use crate::{Gid, QpNum};

pub(super) use tcp::Tcp;

slotmap::new_key_type! {
    /// Names a queue pair of this process; never that of a destroyed one's successor.
    pub(crate) struct QpRef;
    /// Names an open software device of this process.
    pub(crate) struct DeviceRef;
}

/// Bytes that a wire moves at most before it lets others have the lock. Without memory to share a message is one copy
/// inside a process, and so is one between processes that has waited in the queue.
pub(crate) const HOLD_BYTES_MAX: usize = 256 << 10;

/// The right to use one range of memory, until it is revoked; see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) qp: QpRef,
    pub(crate) right: Right,
}

/// What a [`Token`] stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    /// A send-queue request that has not completed: its payload, or where a read lands.
    Requested { serial: u64 },
    /// The placement that a responder has under way, into a registration or a receive.
    Placing { serial: u64 },
    /// The copy of a message that a fault holds back.
    Delayed { serial: u64 },
    /// A registration that a read answers from.
    Answering { key: u32, serial: u64 },
}

/// Bytes to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Payload {
    pub(crate) token: Token,
    pub(crate) addr: u64,
    pub(crate) len: u32,
}

/// What to do with the payload that follows a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// None follows (or none is wanted, and the length is 0).
    Nothing,
    /// Put it there, then say [`Sink::placed`].
    At { token: Token, addr: u64, len: u32 },
    /// Take `len` bytes off the wire and forget them.
    Discard { len: u32 },
}

/// Who a connection is from and to; the first thing said on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) source_gid: Gid,
    pub(crate) source_qp: QpNum,
    pub(crate) destination_gid: Gid,
    pub(crate) destination_qp: QpNum,
}

/// The state of all queue pairs, as a wire sees it.
///
/// None of these calls reaches back into the wire: what they make it send is handed to
/// [`Sockets`] right after the call that delivered the bytes has returned.
pub(crate) trait Sink {
    /// A connection from a peer's requester. `None` unless the destination is in RTR or RTS
    /// and connected to exactly that source.
    fn accept(&mut self, hello: &Hello) -> Option<QpRef>;

    /// A request arrived for the responder of `qp`.
    fn request(&mut self, now: Instant, qp: QpRef, request: &Request) -> Placement;

    /// A reply arrived for the requester of `qp`.
    fn reply(&mut self, now: Instant, qp: QpRef, reply: &Reply) -> Placement;

    /// The payload of the last message is complete. To be said also when the token turned
    /// invalid on the way and the rest was discarded: the refusal is decided here.
    fn placed(&mut self, now: Instant, token: Token);

    /// Whether the memory behind `token` may still be used, in this hold of the lock.
    fn still_valid(&self, token: Token) -> bool;

    /// Whether the request behind `token` was carried out, so that what is sent of it once more is
    /// dropped by the peer, whatever it is.
    fn carried_out(&self, token: Token) -> bool;

    /// Bytes of `qp`'s requests are moving: its acknowledgement timer starts again.
    fn moving(&mut self, now: Instant, qp: QpRef);
}

/// The sockets of all devices of the process; kept beside the state, under the same lock.
///
/// A requester has one connection of its own to the peer device's listener: its requests go
/// one way, the replies come back on it. A payload whose token turned invalid before its first
/// byte was sent is dropped with its message; one that turned invalid later is made up to its
/// length with zeros when the peer will drop it, and else ends the connection.
pub(crate) trait Sockets: Send {
    /// Listens for peers of `device` at the address and port of its GID (port 0: a free one),
    /// and tells the port.
    fn listen(&mut self, device: DeviceRef, address: std::net::SocketAddrV4) -> std::io::Result<u16>;
    /// Closes that listener and the connections it accepted.
    fn unlisten(&mut self, device: DeviceRef);

    /// `qp` is ready to receive from the peer, and its requester will send to it; errors show as silence.
    fn connect(&mut self, now: Instant, qp: QpRef, hello: &Hello);
    /// Sends a request and its payload, in order.
    fn enqueue_request(&mut self, now: Instant, qp: QpRef, request: &Request, payload: Option<Payload>);
    /// Sends a reply on the connection that `qp`'s responder was last asked on. How many may
    /// be queued is bounded by taking no further request off a connection that does not drain.
    fn enqueue_reply(&mut self, now: Instant, qp: QpRef, reply: &Reply, payload: Option<Payload>);
    /// Sends what was enqueued since the last call, as far as the sockets take it at once.
    fn flush(&mut self, now: Instant, sink: &mut dyn Sink);
    /// Drops the requests of `qp` that are queued and not partly sent: they will be sent again.
    fn reset(&mut self, qp: QpRef);
    /// Closes the connection that `qp`'s responder is asked on: its peer takes another wire.
    fn close_inbound(&mut self, qp: QpRef);
    /// Closes both connections of `qp`: it is in ERR or gone. Replies already queued (such as
    /// the refusal that moved it to ERR) are still sent, if they have no payload.
    fn close(&mut self, qp: QpRef);

    /// Whether there is any connection, so that it pays to look for input.
    fn is_connected(&self) -> bool;
    /// The descriptor that `key` was registered with in the driver's epoll is ready.
    fn ready(&mut self, now: Instant, key: u64, sink: &mut dyn Sink);
    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    fn poll_timeout(&self) -> Option<Instant>;
    /// Reconnects, gives up, and the like.
    fn handle_timeout(&mut self, now: Instant, sink: &mut dyn Sink);
}
