//! Errors of operations: what ended an operation, which rank is at fault, and what to do.
//!
//! Errors of making a communicator are in `setup_error`, those of types and counts in `reduce`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::reduce::{AllocError, ReduceError, ScheduleError};
use crate::engine::EngineError;
use crate::link::{LaneFailure, LaneName};

/// An operation as errors quote it: `all-reduce 17 of 1024 float (sum)`.
///
/// A part of [`CollectiveError`](crate::collective::CollectiveError).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationName {
    /// Number of earlier operations of the communicator; for a send or receive, of earlier messages from the one rank
    /// to the other.
    pub sequence: u64,
    /// The collective, such as `all-reduce`.
    pub collective: &'static str,
    /// Number of elements; 0 if each rank has counts of its own.
    pub count: u64,
    /// The type of the elements and the reduction or root.
    pub of: String,
}

/// How far an operation had come when an error ended it.
///
/// A part of [`CollectiveError`](crate::collective::CollectiveError).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// The operation.
    pub operation: OperationName,
    /// Bytes that this rank still had to receive.
    pub bytes_outstanding: u64,
    /// Time between the last progress and the end.
    pub last_progress: Duration,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, bytes_outstanding, last_progress } = self;
        write!(
            f,
            "in {operation}, with {bytes_outstanding} bytes outstanding and the last progress {last_progress:.1?} ago"
        )
    }
}

/// Says in which operation this rank was; for texts such as "rank 3 is lost {whereabouts}".
fn whereabouts(interrupted: &Option<Interrupted>) -> String {
    interrupted.as_ref().map_or_else(|| "between operations".to_owned(), ToString::to_string)
}

fn aborted(culprit: u32, reporter: u32, reason: AbortReason, interrupted: &Option<Interrupted>) -> String {
    let here = interrupted.as_ref().map_or_else(
        || "No operation was running here".to_owned(),
        |interrupted| format!("This rank was {interrupted}"),
    );
    match reason {
        // Neither rank can know which of the two calls is the wrong one.
        AbortReason::Mismatch => format!(
            "ranks {culprit} and {reporter} called different operations. {here}. Call the same operations in the same \
             order on ranks {culprit} and {reporter}"
        ),
        AbortReason::Requested | AbortReason::Queued => {
            format!("rank {culprit} gave up: {reason}. {here}. See the log of rank {culprit}")
        }
        _ => format!(
            "rank {culprit} failed (reported by rank {reporter}: {reason}). {here}. See the log of rank {culprit}"
        ),
    }
}

impl fmt::Display for OperationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequence, collective, count, of } = self;
        if *count == 0 && collective.ends_with("-v") {
            return write!(f, "{collective} {sequence} of {of}");
        }
        write!(f, "{collective} {sequence} of {count} {of}")
    }
}

/// The reason for which a rank ended an operation, as that rank told the others.
///
/// A part of [`CollectiveError`](crate::collective::CollectiveError).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AbortReason {
    /// The link to the rank at fault failed.
    PeerFailed,
    /// The rank at fault did not answer by the deadline.
    DeadlineExceeded,
    /// The rank at fault called another operation.
    Mismatch,
    /// The rank asked for the end, by an [`Aborter`](crate::collective::Aborter).
    Requested,
    /// The rank's deadline passed before its operation could begin; that rank returns [`CollectiveError::Queued`].
    Queued,
    /// A reason of a later release.
    Other,
}

impl fmt::Display for AbortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PeerFailed => "the link failed",
            Self::DeadlineExceeded => "no answer by the deadline",
            Self::Mismatch => "another operation was called",
            Self::Requested => "it asked for the end",
            Self::Queued => "its deadline passed before its operation could begin",
            Self::Other => "for a reason that this release does not know",
        })
    }
}

fn unconnected(because: &Option<Arc<CollectiveError>>) -> String {
    because.as_ref().map_or_else(
        || " yet; call `connect` on all ranks before they send to each other".to_owned(),
        |why| format!(", and there can be none: {why}, and make a new communicator"),
    )
}

impl CollectiveError {
    /// Whether no rank has sent anything of the operation, so that the communicator goes on.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Unconnected { .. })
    }

    /// The cause of an end, as the value of a label.
    pub(crate) fn cause(&self) -> &'static str {
        match self {
            Self::PeerFailed { .. } => "peer_failed",
            Self::DeadlineExceeded { .. } => "deadline_exceeded",
            Self::Fenced { .. } => "fenced",
            Self::Mismatch { .. } | Self::CountsDiffer { .. } => "mismatch",
            Self::Queued => "queued",
            Self::Engine(_) => "device",
            Self::Aborted { reason, .. } => match reason {
                AbortReason::PeerFailed => "peer_failed",
                AbortReason::DeadlineExceeded => "deadline_exceeded",
                AbortReason::Mismatch => "mismatch",
                AbortReason::Requested => "requested",
                AbortReason::Queued => "queued",
                AbortReason::Other => "other",
            },
            _ => "other",
        }
    }

    /// The rank at fault, if the error names one.
    pub(crate) fn culprit(&self) -> Option<u32> {
        match self {
            Self::PeerFailed { rank, .. }
            | Self::DeadlineExceeded { rank, .. }
            | Self::Unlinked { rank, .. } => Some(*rank),
            Self::Aborted { culprit, .. } => Some(*culprit),
            Self::Mismatch { peer, .. } | Self::CountsDiffer { peer, .. } => Some(*peer),
            _ => None,
        }
    }
}

/// The reason why an operation did not complete.
///
/// Some errors refuse a call before any rank has sent anything, and the communicator goes on:
/// [`LengthsDiffer`](Self::LengthsDiffer), [`PartsDiffer`](Self::PartsDiffer), [`Indivisible`](Self::Indivisible),
/// [`CountsDoNotFit`](Self::CountsDoNotFit), [`Range`](Self::Range), [`Schedule`](Self::Schedule),
/// [`Reduce`](Self::Reduce), [`ToItself`](Self::ToItself), [`GroupTooLong`](Self::GroupTooLong),
/// [`TooManyOperations`](Self::TooManyOperations), [`ForeignMemory`](Self::ForeignMemory) and
/// [`Unconnected`](Self::Unconnected). After any other error the output is undefined and the communicator has ended on
/// all ranks.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// A neighbour died or is silent, or the network to it is down.
    #[error(
        "rank {rank} is lost {} ({lane}: {cause}); see the log of rank {rank} and the network between",
        whereabouts(interrupted)
    )]
    PeerFailed {
        /// The neighbour.
        rank: u32,
        /// The lane to the neighbour.
        lane: LaneName,
        /// The failure of the lane.
        cause: LaneFailure,
        /// The operation that ended; `None` between operations.
        interrupted: Option<Interrupted>,
    },
    /// A rank did not answer by the deadline.
    #[error(
        "rank {rank} did not answer within {waited:.1?} {interrupted} ({lane}); see whether rank {rank} runs and where \
         it waits, or set a later deadline"
    )]
    DeadlineExceeded {
        /// The late rank. This rank waited for it directly, or through neighbours that waited for it in turn.
        rank: u32,
        /// The lane to the neighbour from which nothing came.
        lane: LaneName,
        /// The operation that ended.
        interrupted: Interrupted,
        /// The time that this rank waited.
        waited: Duration,
    },
    /// Another rank ended the communicator, and said why.
    #[error("aborted: {}", aborted(*culprit, *reporter, *reason, interrupted))]
    Aborted {
        /// The rank at fault; for [`Mismatch`](AbortReason::Mismatch), this one or the reporter.
        culprit: u32,
        /// The rank that noticed the fault.
        reporter: u32,
        /// The reason that the reporter gave.
        reason: AbortReason,
        /// The operation that ended; `None` between operations.
        interrupted: Option<Interrupted>,
    },
    /// This process did not run for a while, so the other ranks took it for lost and ended without it.
    #[error(
        "the other ranks went on without this one, which they lost {}{}; see what stopped this process: a signal, a \
         debugger, a host without a core to spare",
        whereabouts(interrupted),
        away.map_or_else(String::new, |away| format!(" and which did not run for {away:.1?}"))
    )]
    Fenced {
        /// The time that this process did not run, if it noticed.
        away: Option<Duration>,
        /// The operation that ended; `None` between operations.
        interrupted: Option<Interrupted>,
    },
    /// Two ranks called different operations.
    #[error(
        "rank {rank} called {ours}, and rank {peer} {theirs}; call the same operations in the same order on all ranks"
    )]
    Mismatch {
        /// This rank.
        rank: u32,
        /// The other one.
        peer: u32,
        /// The operation that this rank called.
        ours: OperationName,
        /// The operation that the other rank called.
        theirs: OperationName,
    },
    /// A rank sends more or fewer elements than the receiver expects.
    #[error(
        "rank {peer} sends {sent} elements to rank {rank}, which expects {expected}; pass the same count on ranks {peer} \
         and {rank}"
    )]
    CountsDiffer {
        /// This rank.
        rank: u32,
        /// The rank that sends, which may be this one.
        peer: u32,
        /// Elements that this rank expects.
        expected: u64,
        /// Elements that the other rank sends.
        sent: u64,
    },
    /// There is not one count for each rank, or the counts do not add up to the length of the buffer.
    #[error(
        "{counts} counts with the sum {sum} do not fit {ranks} ranks and {elements} elements of {buffer}; pass one count for \
         each rank, and a buffer of as many elements as the sum of the counts"
    )]
    CountsDoNotFit {
        /// `input` or `output`.
        buffer: &'static str,
        /// Elements of the buffer.
        elements: usize,
        /// Number of counts.
        counts: usize,
        /// Sum of the counts.
        sum: usize,
        /// Number of ranks.
        ranks: u32,
    },
    /// A rank could not open the links that an operation needs, and the ring cannot replace them; all ranks know it.
    #[error("rank {rank} could not be connected to other ranks: {reason}; mend it there")]
    Unlinked {
        /// The rank.
        rank: u32,
        /// The error on that rank.
        reason: String,
    },
    /// There is no link to a rank that this one sends to or receives from. Nothing was sent; the communicator goes on.
    /// Operations that began before the ranks found that there can be no links also end with this error, on all ranks.
    #[error("there is no link to rank {rank}{}", unconnected(because))]
    Unconnected {
        /// The rank.
        rank: u32,
        /// The reason why there can be no links, an [`Unlinked`](Self::Unlinked), once an operation that can do without
        /// links has found it.
        because: Option<Arc<CollectiveError>>,
    },
    /// A rank sends to itself without receiving in the same operation, or the reverse.
    #[error(
        "rank {rank} would wait for itself: a send to itself needs a receive in the same operation; put both into one \
         `send_recv` or one group"
    )]
    ToItself {
        /// The rank.
        rank: u32,
    },
    /// A group has more sends and receives than one operation can carry.
    #[error("more than {max} sends and receives in one group; run it in parts")]
    GroupTooLong {
        /// The limit.
        max: usize,
    },
    /// Input and output differ in length.
    #[error("{input} bytes of input and {output} of output; pass buffers of one length")]
    LengthsDiffer {
        /// Bytes of the input.
        input: usize,
        /// Bytes of the output.
        output: usize,
    },
    /// The longer buffer is not as long as one part, of the length of the shorter buffer, for each rank.
    #[error(
        "a part of {part} bytes for each of {ranks} ranks is not {whole} bytes; pass a buffer of {ranks} parts"
    )]
    PartsDiffer {
        /// Bytes of the buffer of one part.
        part: usize,
        /// Bytes of the buffer of all parts.
        whole: usize,
        /// Number of ranks.
        ranks: u32,
    },
    /// The elements of a buffer cannot be shared evenly among the ranks.
    #[error("{count} elements have no equal part for each of {ranks} ranks; pass a multiple of {ranks}")]
    Indivisible {
        /// Elements of the buffer.
        count: usize,
        /// Number of ranks.
        ranks: u32,
    },
    /// The buffer cannot be cut, the count is too large, or the root is no rank.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The bytes are not whole elements.
    #[error(transparent)]
    Reduce(#[from] ReduceError),
    /// An earlier operation failed and ended the communicator.
    #[error("the communicator has ended because of an earlier error: {first}; make a new communicator")]
    Ended {
        /// The first error.
        first: Arc<CollectiveError>,
    },
    /// The communicator was closed before all messages of this rank had arrived.
    #[error(
        "the deadline passed before all messages of this rank had arrived, and they may be lost; see whether the \
         neighbours run"
    )]
    Unsent,
    /// The deadline passed before the operation began, for example behind other operations. Nothing was sent, but other
    /// ranks may have begun the operation, so the communicator ends on all ranks.
    #[error(
        "the deadline passed before the operation could begin; wait for operations begun earlier first, or give it more \
         time"
    )]
    Queued,
    /// The maximum of operations is pending. The buffers come back, and the communicator goes on.
    #[error("{max} operations are pending, and there can be no more; wait for one of them")]
    TooManyOperations {
        /// The limit.
        max: usize,
    },
    /// A range ends beyond its region.
    #[error("bytes {start} to {end} of a region of {len}; pass a range that it has")]
    Range {
        /// The first byte.
        start: usize,
        /// The byte after the last one.
        end: usize,
        /// Bytes of the region.
        len: usize,
    },
    /// The memory belongs to another engine, and this engine's device has no registration of it.
    #[error("the memory is registered with another engine; allocate or register it with this one's")]
    ForeignMemory,
    /// Memory for the operation could not be allocated.
    #[error("memory for the operation could not be allocated: {source}")]
    Memory {
        /// The allocation's error.
        source: Arc<AllocError>,
    },
    /// The engine cannot go on.
    #[error(transparent)]
    Engine(#[from] EngineError),
}
