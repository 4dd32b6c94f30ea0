//! Errors of polling, waiting and fencing.

use std::io;
use std::time::Duration;

use crate::QpNum;

/// A completion queue could not be polled or waited for. Only after `DeadlineExceeded` is the worker still
/// usable.
///
/// Raised by [`Worker::poll`](crate::Worker::poll) and [`Worker::wait`](crate::Worker::wait).
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum PollError {
    /// The completion queue overran and lost completions.
    #[error(
        "the completion queue overran and lost completions: drop the worker, and give the next a larger max_cqe"
    )]
    Overrun,
    /// The device completed a request that is not in flight. The completion is not used, so no memory is
    /// freed wrongly.
    #[error(
        "the device completed {wr_id:#x}, which is not in flight: this is a fault of the driver; drop the worker"
    )]
    Unexpected {
        /// The identifier that the device returned.
        wr_id: u64,
    },
    /// The deadline passed before a completion arrived. Nothing is lost: wait again, or fence the queue pair.
    #[error(
        "no completion within {waited:?}: the peer may be dead or stopped; fence the queue pair to get its buffers back"
    )]
    DeadlineExceeded {
        /// Time that the call waited.
        waited: Duration,
    },
    /// A verb or a system call failed.
    #[error("{verb} failed: {source}; drop the worker")]
    Refused {
        /// The C name of the call.
        verb: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// This process was forked from the one that made the object.
    #[error(transparent)]
    Forked(#[from] super::Forked),
}

/// A queue pair could not be fenced. It still exists, and the memory of its requests stays in flight.
///
/// Each variant says what may still happen. Fence again, except after `ForeignWorker`. Memory of a queue pair
/// that is never fenced is leaked with the worker.
///
/// Raised by [`Worker::fence`](crate::Worker::fence).
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// The queue pair could be neither moved to ERR nor destroyed: requests of both sides go on.
    #[error(
        "queue pair {qp_num} could be neither moved to ERR nor destroyed: {source}; it still takes its peer's \
         writes, and its memory is kept: call again, or drop the worker"
    )]
    NotStopped {
        /// Number of the queue pair.
        qp_num: QpNum,
        /// The kernel's error for the move to ERR.
        source: io::Error,
    },
    /// The queue pair is in ERR, so its peer's requests are refused. It could not be destroyed, so the device
    /// may still access the memory of requests that were in flight.
    #[error(
        "queue pair {qp_num} is in ERR and could not be destroyed: {source}; its memory is kept, call again"
    )]
    NotDestroyed {
        /// Number of the queue pair.
        qp_num: QpNum,
        /// The kernel's error.
        source: io::Error,
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
