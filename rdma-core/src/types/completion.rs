//! Outcomes of posted work requests.

use std::fmt;

use crate::CompletionStatus;

/// The identifier of one posted work request, unique as long as its worker lives.
///
/// The number encodes the slot of the queue pair, a generation and a sequence number. It is never a pointer, so a
/// number that a faulty device returns can be checked instead of being followed.
///
/// Returned by [`Worker::post`](crate::Worker::post), and quoted by the [`Completion`](crate::Completion).
#[doc(alias = "wr_id")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkId(pub(crate) u64);

impl fmt::Display for WorkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

/// The operation that a completed work request carried out.
///
/// A part of [`Success`] and [`Failure`].
#[doc(alias = "ibv_wc_opcode")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Opcode {
    /// A send, with or without an immediate.
    Send,
    /// A write, with or without an immediate.
    Write,
    /// A read.
    Read,
    /// A receive that took a peer's send.
    Recv,
    /// A receive that the immediate of a peer's write consumed; the bytes landed where the peer's request
    /// said.
    RecvWriteImm,
}

/// The outcome of a work request that succeeded. See `ibv_poll_cq(3)`.
///
/// The value in [`Completion::result`](crate::Completion).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Success {
    /// The operation that was carried out.
    pub opcode: Opcode,
    /// Bytes that were received, written or read.
    pub bytes: u32,
    /// The peer's immediate, in host order; only on [`Opcode::Recv`] and [`Opcode::RecvWriteImm`].
    pub imm: Option<u32>,
}

/// The outcome of a work request that failed. See `ibv_poll_cq(3)`.
///
/// The device leaves opcode, length and immediate undefined after a failure, so this type does not expose
/// them.
///
/// The error in [`Completion::result`](crate::Completion).
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The reason of the failure; its `Display` names the side that must act.
    pub status: CompletionStatus,
    /// The driver's own number for the reason; 0 when it has none.
    pub vendor_error: u32,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status.fmt(f)?;
        if self.vendor_error != 0 {
            write!(f, ", vendor error {:#x}", self.vendor_error)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
