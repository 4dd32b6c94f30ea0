//! What became of a posted work request.

use std::fmt;

use crate::CompletionStatus;

/// The name of one posted work request, unique while its worker lives.
///
/// It is made of the queue pair's slot and a sequence number, and is never a pointer.
#[doc(alias = "wr_id")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkId(pub(crate) u64);

impl fmt::Display for WorkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

/// What was carried out.
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
    /// A receive that took the immediate of a peer's write; the bytes landed where the peer said.
    RecvWriteImm,
}

/// A work request that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Success {
    /// What was carried out.
    pub opcode: Opcode,
    /// Bytes received, written or read.
    pub bytes: u32,
    /// The peer's immediate, in host order; only on [`Opcode::Recv`] and [`Opcode::RecvWriteImm`].
    pub imm: Option<u32>,
}

/// A work request that was not carried out.
///
/// The fields of the device's entry that are undefined after a failure (opcode, length,
/// immediate) cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// Why.
    pub status: CompletionStatus,
    /// The driver's own number for it; 0 when it has none.
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
