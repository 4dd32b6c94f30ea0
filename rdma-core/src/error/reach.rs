//! [`ReachError`]: accessing mapped memory of a peer, and waiting for flags.

use std::time::Duration;

use super::RangeError;
use crate::{PeerAccess, QpNum};

/// Mapped memory of a peer could not be accessed, or a flag did not arrive.
///
/// The peer does not learn of these errors, and the state of the queue pair does not change.
///
/// Raised by [`PeerWindow`](crate::memory::PeerWindow), [`PeerSlice`](crate::PeerSlice) and
/// [`Region::wait`](crate::Region::wait).
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ReachError {
    /// The peer is reached by a device or a byte stream, so its memory cannot be mapped.
    #[error("the peer is reached by {access}, so its memory is not mapped here: post requests instead")]
    NotMapped {
        /// The path by which the peer is reached.
        access: PeerAccess,
    },
    /// The peer's memory is of a kind that processes cannot share.
    #[error(
        "the peer registered memory that processes cannot share: let the library allocate it there, or call \
         Memory::share_in_place there; or post requests instead"
    )]
    NotShared,
    /// The peer or this process refused to map the memory. Each attempt to map reports this error once; the
    /// next call tries again.
    #[error("the peer's memory is not mapped: {reason}; remove the cause and try again")]
    Unmapped {
        /// The refusal, with its remedy.
        reason: String,
    },
    /// The range reaches beyond the slice, the window or the region.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// The range reaches beyond the memory that the peer registered.
    #[error(
        "the range is not within the memory that the peer registered under this key: check the address and length that the peer sent"
    )]
    OutOfRange,
    /// The flag's address is not a multiple of its length, so that it could be seen half stored.
    #[error(
        "a flag of {len} bytes at address {address:#x} is not aligned: choose an offset whose address is a multiple \
         of {len}"
    )]
    Unaligned {
        /// Address of the flag in the memory of its owner.
        address: u64,
        /// Length of the flag in bytes.
        len: usize,
    },
    /// The key names no registration of the peer.
    #[error("the key names no memory of the peer: it was deregistered, or never registered there")]
    Revoked,
    /// The key belongs to another protection domain than the peer's queue pair.
    #[error("the key is of another protection domain than the peer's queue pair: register in the same one")]
    ForeignDomain,
    /// The peer's region or queue pair lacks the right.
    #[error(
        "the peer's region or queue pair lacks the right: register and connect with REMOTE_READ or REMOTE_WRITE"
    )]
    AccessDenied,
    /// The peer's process or queue pair has ended.
    #[error("the peer is gone: its process or its queue pair has ended; connect again")]
    PeerGone,
    /// The queue pair is in ERR.
    #[error("queue pair {qp_num} is in ERR: fence it and connect again")]
    Failed {
        /// Number of the queue pair.
        qp_num: QpNum,
    },
    /// The deadline passed before the operation was complete.
    #[error(
        "the deadline passed after {waited:?}, with {done} bytes done: the peer may be stopped or busy, or there are too many \
         bytes; wait again or give up"
    )]
    DeadlineExceeded {
        /// Time that the call waited.
        waited: Duration,
        /// Bytes from the start that were copied or passed to a reduction.
        done: u64,
    },
    /// The queue pair belongs to another worker.
    #[error("queue pair {qp_num} belongs to another worker: hand it to the one that created it")]
    ForeignWorker {
        /// Number of the queue pair.
        qp_num: QpNum,
    },
    /// This process was forked from the one that made the object.
    #[error(transparent)]
    Forked(#[from] super::Forked),
}

impl ReachError {
    /// Adds the bytes that were done in earlier parts of one operation, so that a deadline error reports the
    /// total.
    pub(crate) fn after(self, before: usize) -> Self {
        match self {
            Self::DeadlineExceeded { waited, done } => {
                Self::DeadlineExceeded { waited, done: done + before as u64 }
            }
            other => other,
        }
    }
}
