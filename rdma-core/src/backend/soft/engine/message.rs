//! Messages between two software queue pairs: whole requests and replies, not packets.
//!
//! The payload is not part of a message. A wire moves it from the requester's memory to where the responder says, so
//! that the wire inside a process copies once, and TCP reads straight into the target.

/// Bytes of the longest message of a reliable connection, by the InfiniBand specification: 2 GiB.
pub(crate) const MESSAGE_BYTES_MAX: u32 = 1 << 31;

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestOp {
    /// Deliver the payload into the next posted receive.
    Send,
    /// Place the payload at `remote_addr`.
    Write,
    /// Answer with the bytes at `remote_addr`.
    Read,
}

/// A request; `len` bytes of payload follow it, unless it is a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// The sequence number: counts the requests of a connection in 24 bits, wrapping.
    pub(crate) psn: u32,
    pub(crate) op: RequestOp,
    pub(crate) imm: Option<u32>,
    /// The remote address; meaningful for writes and reads only, as is the key.
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
    /// Bytes that are sent, written or asked for.
    pub(crate) len: u32,
    /// A completion waits for the acknowledgement, so that it must not be late. Never set for a read, which its data
    /// acknowledges. The AckReq bit of the InfiniBand specification (9.7.5.1.1).
    pub(crate) ack_req: bool,
}

impl Request {
    /// Bytes of payload that follow the request.
    pub(crate) fn payload_len(&self) -> u32 {
        if self.op == RequestOp::Read { 0 } else { self.len }
    }
}

/// The reason of a negative acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nak {
    /// An earlier request is missing: send again from `psn`.
    Sequence,
    /// The receive is too small, or the operation is not enabled.
    InvalidRequest,
    /// The key, the range or a right is wrong.
    RemoteAccess,
    /// The responder failed for another reason.
    RemoteOperational,
}

/// The kind of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyKind {
    /// Every request up to and including `psn` is carried out.
    Ack,
    /// The data of the read `psn`, which this also acknowledges; `len` bytes of payload follow.
    ReadData,
    /// Request `psn` was refused.
    Nak(Nak),
    /// No receive is posted for `psn`: send the request again after the time of the code.
    Rnr {
        /// The [`RnrTimer`](crate::RnrTimer) code.
        timer: u8,
    },
}

/// A reply of a responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) psn: u32,
    pub(crate) kind: ReplyKind,
    /// Bytes of payload that follow; 0 except for `ReadData`.
    pub(crate) len: u32,
}
