//! Errors of posting work requests and of detaching regions.

use std::fmt;
use std::io;

use super::RangeError;
use crate::QpNum;

/// The reason why a work request was not posted.
///
/// [`PostRefused`] has it beside the request; [`Worker::post`](crate::Worker::post) raises both.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The queue holds as many requests as it can. This is back-pressure, not a failure: poll, then post
    /// again.
    #[error("the queue is full ({capacity} outstanding): poll for completions, then post again")]
    QueueFull {
        /// Requests that the queue can hold.
        capacity: u32,
    },
    /// A range reaches beyond its region.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// The local and the remote range have different lengths.
    #[error("the local range has {local} bytes and the remote range {remote}: make both equal")]
    LengthMismatch {
        /// Bytes of the local range.
        local: u64,
        /// Bytes of the remote range.
        remote: u64,
    },
    /// The request is longer than one work request can be.
    #[error("the request has {len} bytes and one request may have {limit}: split the request")]
    TooLong {
        /// Bytes of the request.
        len: u64,
        /// Bytes that one request may have.
        limit: u64,
    },
    /// The request has more inline bytes than the queue pair was created for.
    #[error(
        "the request has {len} inline bytes and the queue pair allows {limit}: raise max_inline_data or use a buffer"
    )]
    InlineTooLong {
        /// Inline bytes of the request.
        len: usize,
        /// Inline bytes that the queue pair allows.
        limit: u32,
    },
    /// The registration of the local memory lacks the right that the operation needs.
    #[error(
        "the memory's registration lacks the right that this operation needs: register it with LOCAL_WRITE"
    )]
    AccessDenied,
    /// The memory was registered in another protection domain than the one of the queue pair.
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
        /// Number of the queue pair.
        qp_num: QpNum,
    },
    /// The device refused the request.
    #[error("{verb} failed: {source}; the queue pair is unusable: fence it")]
    Refused {
        /// The C name of the verb.
        verb: &'static str,
        /// The driver's error.
        source: io::Error,
    },
    /// This process was forked from the one that made the object.
    #[error(transparent)]
    Forked(#[from] super::Forked),
}

/// A work request that was not posted, given back with the reason.
///
/// Raised by [`Worker::post`](crate::Worker::post) and [`Worker::post_recv`](crate::Worker::post_recv).
pub struct PostRefused<W> {
    /// The request with its buffer, unchanged.
    pub work: W,
    /// The reason why it was not posted.
    pub error: PostError,
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

/// A batch of which the device accepted only the first requests.
///
/// Requests that were posted complete as usual. The others are given back here, in order.
///
/// Raised by [`Batch::submit`](crate::Batch::submit).
pub struct PartialPost<W> {
    /// Number of requests that were posted.
    pub posted: usize,
    /// The requests that were not posted, unchanged.
    pub rejected: Vec<W>,
    /// The reason why the first of them was not posted.
    pub error: PostError,
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

/// A region could not be detached from a worker.
///
/// Raised by [`Worker::detach`](crate::Worker::detach).
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DetachError {
    /// The worker does not hold the region.
    #[error("the region is not attached to this worker: it was detached before, or attached to another")]
    NotAttached,
    /// Requests in flight use the region.
    #[error(
        "{requests} requests that use the region are in flight: wait for their completions, or fence their queue pairs"
    )]
    InFlight {
        /// Number of those requests.
        requests: u32,
    },
}
