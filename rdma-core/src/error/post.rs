//! Posting work requests.

use std::fmt;
use std::io;

use super::RangeError;
use crate::QpNum;

/// Why a work request was not posted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// As many are outstanding as the queue holds. This is back-pressure: poll, then post again.
    #[error("the queue is full ({capacity} outstanding): poll for completions, then post again")]
    QueueFull {
        /// Its depth.
        capacity: u32,
    },
    /// A range leaves its region.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// The local and the remote range differ in length.
    #[error("{local} local bytes against {remote} remote ones: make both the same")]
    LengthMismatch {
        /// Bytes here.
        local: u64,
        /// Bytes there.
        remote: u64,
    },
    /// A message longer than a work request can carry.
    #[error("{len} bytes in one request, {limit} are allowed: split it")]
    TooLong {
        /// Its bytes.
        len: u64,
        /// What is allowed.
        limit: u64,
    },
    /// Inline data beyond what the queue pair was made for.
    #[error("{len} bytes inline, the queue pair takes {limit}: raise max_inline_data or use a buffer")]
    InlineTooLong {
        /// Its bytes.
        len: usize,
        /// What is allowed.
        limit: u32,
    },
    /// The operation needs a right that the memory's registration lacks.
    #[error(
        "the memory's registration lacks the right that this operation needs: register it with LOCAL_WRITE"
    )]
    AccessDenied,
    /// The memory was registered in another protection domain than the queue pair's.
    #[error(
        "the memory belongs to another protection domain than the queue pair: register it in the queue pair's"
    )]
    ForeignProtectionDomain,
    /// The region is not attached to this worker, or was detached.
    #[error("the region is not attached to this worker: attach it first")]
    NotAttached,
    /// The queue pair belongs to another worker.
    #[error("queue pair {qp_num} belongs to another worker: post through the one that created it")]
    ForeignWorker {
        /// The queue pair.
        qp_num: QpNum,
    },
    /// The device refused.
    #[error("{verb} failed: {source}; the queue pair is unusable: fence it")]
    Refused {
        /// The verb, by its C name.
        verb: &'static str,
        /// What the driver said.
        source: io::Error,
    },
}

/// A work request that was not posted, given back whole with the reason.
pub struct PostRefused<W> {
    /// The request, buffer and all, as it was handed in.
    pub work: W,
    /// Why.
    pub error: PostError,
}

impl<W> fmt::Debug for PostRefused<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostRefused").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<W> fmt::Display for PostRefused<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<W> std::error::Error for PostRefused<W> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}

/// A batch of which the device took only the first part.
///
/// What was posted completes as usual; what was not is here, in order.
pub struct PartialPost<W> {
    /// How many of the batch were posted.
    pub posted: usize,
    /// The others, as they were handed in.
    pub rejected: Vec<W>,
    /// Why.
    pub error: PostError,
}

impl<W> fmt::Debug for PartialPost<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartialPost")
            .field("posted", &self.posted)
            .field("rejected", &self.rejected.len())
            .field("error", &self.error)
            .finish()
    }
}

impl<W> fmt::Display for PartialPost<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} posted, {} not: {}", self.posted, self.rejected.len(), self.error)
    }
}

impl<W> std::error::Error for PartialPost<W> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}

/// A region could not be taken back from a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DetachError {
    /// The worker does not hold it.
    #[error("the region is not attached to this worker: it was detached before, or attached to another")]
    NotAttached,
    /// Requests that use it are in flight.
    #[error(
        "{requests} requests that use the region are in flight: wait for their completions, or fence their queue pairs"
    )]
    InFlight {
        /// How many.
        requests: u32,
    },
}
