//! Reaching into the memory of a peer, and waiting for flags.

use std::io;
use std::time::Duration;

use super::RangeError;
use crate::{PeerAccess, QpNum};

/// Memory of a peer could not be reached, or a flag did not come.
///
/// The peer hears of none of these, and the queue pair stays as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReachError {
    /// The peer is reached by a device or a byte stream.
    #[error("the peer is reached by {access}, and its memory not mapped here: post requests")]
    NotMapped {
        /// How it is reached.
        access: PeerAccess,
    },
    /// The peer's memory cannot be mapped.
    #[error(
        "the peer did not register memory that can be shared: let its library allocate, or Memory::share_in_place; \
         or post requests"
    )]
    NotShared,
    /// The peer, or this process, refused to map it: told once for each time that it was tried.
    #[error("the peer's memory is not mapped: {reason}; mend that and try again")]
    Unmapped {
        /// What was refused.
        reason: String,
    },
    /// More than there is of it.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// More than the peer registered.
    #[error("the range is not within what the peer registered by this key: check what it told of its memory")]
    OutOfRange,
    /// The flag is not where such a number may be.
    #[error(
        "a flag of {len} bytes at address {address:#x} is not aligned: let it begin at a multiple of its length, in memory that \
         does"
    )]
    Unaligned {
        /// Where it begins, in the memory of whose it is.
        address: u64,
        /// Bytes of it.
        len: usize,
    },
    /// The key names nothing.
    #[error("the key names no memory of the peer: it was deregistered, or never registered there")]
    Revoked,
    /// The key is of another protection domain.
    #[error("the key is of another protection domain than the peer's queue pair: register in the same one")]
    ForeignDomain,
    /// The peer does not allow it.
    #[error(
        "the peer's region, or its queue pair, does not allow that: register and connect with REMOTE_READ or REMOTE_WRITE"
    )]
    AccessDenied,
    /// Nothing comes from the peer any more.
    #[error("the peer has gone: its process has ended, or its queue pair; connect again")]
    PeerGone,
    /// The queue pair has failed.
    #[error("queue pair {qp_num} is in ERR: fence it and connect again")]
    Failed {
        /// The queue pair.
        qp_num: QpNum,
    },
    /// The deadline passed first.
    #[error(
        "the deadline passed after {waited:?}, with {done} bytes done: the peer may be stopped or busy, or there are too many \
         bytes; wait again or give up"
    )]
    DeadlineExceeded {
        /// How long was waited.
        waited: Duration,
        /// Bytes from the begin that were copied, or handed to a reduction.
        done: u64,
    },
    /// The queue pair belongs to another worker.
    #[error("queue pair {qp_num} belongs to another worker: hand it to the one that created it")]
    ForeignWorker {
        /// The queue pair.
        qp_num: QpNum,
    },
    /// The device refused.
    #[error("the device cannot be used: {0}")]
    Refused(#[source] io::Error),
}

impl ReachError {
    /// When so many bytes were done before what it is about, of which it says how many were.
    pub(crate) fn after(self, before: usize) -> Self {
        match self {
            Self::DeadlineExceeded { waited, done } => {
                Self::DeadlineExceeded { waited, done: done + before as u64 }
            }
            other => other,
        }
    }
}
