//! Polling, waiting and fencing.

use std::io;
use std::time::Duration;

use crate::QpNum;

/// The completion queue cannot be polled or waited for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PollError {
    /// Completions were lost.
    #[error(
        "the completion queue overran and lost completions: drop the worker, and give the next a larger max_cqe"
    )]
    Overrun,
    /// The device returned a completion for a request that is not in flight.
    #[error(
        "the device completed {wr_id:#x}, which is not in flight: this is a fault of the driver; drop the worker"
    )]
    Unexpected {
        /// What the device said.
        wr_id: u64,
    },
    /// The deadline passed first.
    #[error(
        "no completion within {waited:?}: the peer may be dead or stopped; fence the queue pair to get its buffers back"
    )]
    DeadlineExceeded {
        /// How long was waited.
        waited: Duration,
    },
    /// The verb failed.
    #[error("{verb} failed: {source}; drop the worker")]
    Refused {
        /// The verb, by its C name.
        verb: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// A queue pair could not be fenced: it is still there, and its memory stays in flight.
///
/// Each case says what may still happen. Calling again is right in all but the last; what is never
/// fenced is leaked with the worker.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// It could be neither moved to ERR nor destroyed: its requests and those of its peer go on.
    #[error(
        "queue pair {qp_num} could be neither moved to ERR nor destroyed: {source}; it still takes its peer's \
         writes, and its memory is kept: call again, or drop the worker"
    )]
    NotStopped {
        /// The queue pair.
        qp_num: QpNum,
        /// What the kernel said to the move.
        source: io::Error,
    },
    /// It is in ERR and takes nothing of its peer any more, but could not be destroyed, so the
    /// device may still use the memory of what was under way.
    #[error(
        "queue pair {qp_num} is in ERR and could not be destroyed: {source}; its memory is kept, call again"
    )]
    NotDestroyed {
        /// The queue pair.
        qp_num: QpNum,
        /// What the kernel said.
        source: io::Error,
    },
    /// The queue pair belongs to another worker.
    #[error("queue pair {qp_num} belongs to another worker: hand it to the one that created it")]
    ForeignWorker {
        /// The queue pair.
        qp_num: QpNum,
    },
}
