//! What two software queue pairs say to each other: whole messages, not packets.
//!
//! The payload is not in here. A wire moves it from where the requester has it to where the
//! responder says, so that the wire inside a process copies once and TCP reads straight into
//! the target.

/// What a request asks the peer to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestOp {
    /// Deliver the payload into the next posted receive.
    Send,
    /// Place the payload at `remote_addr`.
    Write,
    /// Answer with the bytes at `remote_addr`.
    Read,
}

/// One request of a requester; `len` bytes of payload follow it, unless it is a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// Counts the requests of a connection; 24 bits, wrapping.
    pub(crate) psn: u32,
    pub(crate) op: RequestOp,
    pub(crate) imm: Option<u32>,
    /// Writes and reads only.
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
    /// Bytes sent, written or asked for.
    pub(crate) len: u32,
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nak {
    /// A request before it is missing: send again from `psn`.
    Sequence,
    /// The receive is too small, or the operation is not enabled.
    InvalidRequest,
    /// Key, range or right.
    RemoteAccess,
    /// The responder failed otherwise.
    RemoteOperational,
}

/// What a reply says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyKind {
    /// Everything up to and including `psn` was carried out.
    Ack,
    /// The bytes that the read `psn` asked for; `len` bytes of payload follow. Acknowledges it, too.
    ReadData,
    /// `psn` was refused.
    Nak(Nak),
    /// No receive is posted for `psn`: send it again after the time of that code.
    Rnr {
        /// [`RnrTimer`](crate::RnrTimer) code.
        timer: u8,
    },
}

/// One reply of a responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) psn: u32,
    pub(crate) kind: ReplyKind,
    /// Payload that follows; 0 but for `ReadData`.
    pub(crate) len: u32,
}
