//! Errors of collectives: what ends them, and what they are named in it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::reduce::{AllocError, ReduceError, ScheduleError};
use crate::engine::EngineError;
use crate::link::{LaneFailure, LaneName};

/// What a rank asked for, as errors quote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationName {
    /// Operations of the communicator before this one; of a send or receive, those before it from the one rank to the other.
    pub sequence: u64,
    /// Such as `all-reduce`.
    pub collective: &'static str,
    /// Elements; 0 where each rank has counts of its own.
    pub count: u64,
    /// The type of an element, and how elements are combined.
    pub of: String,
}

/// Where an operation was when it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// The operation.
    pub operation: OperationName,
    /// Bytes that were still to come.
    pub bytes_outstanding: u64,
    /// How long before its end it made progress last.
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

/// In which operation, or in none.
fn place(interrupted: &Option<Interrupted>) -> String {
    interrupted.as_ref().map_or_else(|| "between operations".to_owned(), ToString::to_string)
}

fn aborted(culprit: u32, reporter: u32, reason: AbortReason, interrupted: &Option<Interrupted>) -> String {
    let place = place(interrupted);
    if reason == AbortReason::Mismatch {
        // Which of the two is wrong, nobody knows.
        format!(
            "ranks {culprit} and {reporter} called different operations, here {place}; call the same in the same order \
             on ranks {culprit} and {reporter}"
        )
    } else {
        format!("of rank {culprit} ({reason}), here {place}; see rank {culprit}")
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

/// Why a rank gave an operation up, as it told the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AbortReason {
    /// The link to the rank at fault failed.
    PeerFailed,
    /// The rank at fault was waited for until the deadline.
    DeadlineExceeded,
    /// The rank at fault called something else.
    Mismatch,
    /// The rank asked for the end, by an [`Aborter`](crate::collective::communicator::Aborter).
    Requested,
    /// The rank's deadline passed before its operation could begin, as [`CollectiveError::Queued`] tells it.
    Queued,
    /// Something that this release does not know.
    Other,
}

impl fmt::Display for AbortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PeerFailed => "it is lost",
            Self::DeadlineExceeded => "it was waited for until the deadline",
            Self::Mismatch => "it called another operation",
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
    /// Whether nothing of the operation was sent, on no rank, and the communicator goes on.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Unconnected { .. })
    }

    /// The rank that it names.
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

/// Why an operation of a communicator did not complete. The output is then undefined, and the communicator ends.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// A neighbour died, is silent, or the network between is.
    #[error(
        "rank {rank} is lost {} ({lane}: {cause}); see why its process or its network ended",
        place(interrupted)
    )]
    PeerFailed {
        /// The neighbour.
        rank: u32,
        /// The lane to it.
        lane: LaneName,
        /// What became of the lane.
        cause: LaneFailure,
        /// What ended by it; `None` when no operation was under way.
        interrupted: Option<Interrupted>,
    },
    /// A rank was waited for until the deadline.
    #[error(
        "rank {rank} was waited for {interrupted} ({lane}), and the deadline passed after {waited:.1?}; \
         see whether it runs, and where it waits"
    )]
    DeadlineExceeded {
        /// The rank that was late: one that this one waited for, or that a neighbour waited for, be it by others that waited.
        rank: u32,
        /// The lane over which nothing came: to a neighbour.
        lane: LaneName,
        /// What ended by it.
        interrupted: Interrupted,
        /// How long was waited.
        waited: Duration,
    },
    /// Another rank has found out and said so, or has asked for it.
    #[error("all ranks end because {}", aborted(*culprit, *reporter, *reason, interrupted))]
    Aborted {
        /// The rank at fault; for [`Mismatch`](AbortReason::Mismatch), it or the reporter.
        culprit: u32,
        /// The rank that found out.
        reporter: u32,
        /// Why.
        reason: AbortReason,
        /// What ended by it; `None` when no operation was under way.
        interrupted: Option<Interrupted>,
    },
    /// This process did not run for a while, and counts as lost: the other ranks have ended because of it.
    #[error(
        "the other ranks went on without this one, which they lost {}{}; see what stopped this process: a signal, a \
         debugger, a host without a core to spare",
        place(interrupted),
        away.map_or_else(String::new, |away| format!(" and which did not run for {away:.1?}"))
    )]
    Fenced {
        /// How long it did not run, as far as it noticed.
        away: Option<Duration>,
        /// What ended by it; `None` when no operation was under way.
        interrupted: Option<Interrupted>,
    },
    /// Two ranks are not in the same operation.
    #[error(
        "rank {rank} called {ours}, and rank {peer} {theirs}; call the same operations in the same order on all ranks"
    )]
    Mismatch {
        /// This rank.
        rank: u32,
        /// The other one.
        peer: u32,
        /// What this rank called.
        ours: OperationName,
        /// What the other one called.
        theirs: OperationName,
    },
    /// A rank sends another one more or fewer elements than that expects.
    #[error(
        "rank {peer} sends {sent} elements to rank {rank}, which expects {expected}; pass counts on ranks {peer} and {rank} \
         that agree"
    )]
    CountsDiffer {
        /// This rank.
        rank: u32,
        /// The rank that sends, which may be this one.
        peer: u32,
        /// Elements that this rank expects.
        expected: u64,
        /// Elements that the other one sends.
        sent: u64,
    },
    /// There is not a count for each rank, or the counts are not those of the buffer.
    #[error(
        "{counts} counts, {sum} together, are not those of {elements} elements of {buffer} for {ranks} ranks; pass a count for \
         each rank, and a buffer of as many elements as they are together"
    )]
    CountsDoNotFit {
        /// Which buffer.
        buffer: &'static str,
        /// Its elements.
        elements: usize,
        /// How many counts there are.
        counts: usize,
        /// Their sum.
        sum: usize,
        /// How many ranks there are.
        ranks: u32,
    },
    /// A rank could not be connected to the others that an operation needs links to, and it has no ring to go around; all ranks know it.
    #[error("rank {rank} could not be connected to other ranks: {reason}; mend it there")]
    Unlinked {
        /// The rank.
        rank: u32,
        /// What it said.
        reason: String,
    },
    /// There are no links by which ranks send to each other; nothing was sent, and the communicator goes on. What has begun before it
    /// was found that there can be none ends by this, too, on all ranks.
    #[error("there is no link to rank {rank}{}", unconnected(because))]
    Unconnected {
        /// The rank.
        rank: u32,
        /// Why there can be none, as [`Unlinked`](Self::Unlinked) has it, once an operation that does without has found that.
        because: Option<Arc<CollectiveError>>,
    },
    /// A rank sends to itself, or receives from itself, and does not do the other in the same operation.
    #[error(
        "rank {rank} would wait for itself: what it sends to itself it has to receive in the same operation; put both \
         into one `send_recv` or one group"
    )]
    ToItself {
        /// The rank.
        rank: u32,
    },
    /// More sends and receives than go on together.
    #[error("more than {max} sends and receives in one group; run it in parts")]
    GroupTooLong {
        /// How many there can be.
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
    /// Of two buffers one is not as long as a part of the other for each rank.
    #[error(
        "a part of {part} bytes for each of {ranks} ranks is not {whole} bytes; pass a buffer of {ranks} parts"
    )]
    PartsDiffer {
        /// Bytes of the buffer of one part.
        part: usize,
        /// Bytes of the buffer of all parts.
        whole: usize,
        /// How many ranks there are.
        ranks: u32,
    },
    /// A buffer has no equal part for each rank.
    #[error("{count} elements have no equal part for each of {ranks} ranks; pass a multiple of {ranks}")]
    Indivisible {
        /// Elements of the buffer.
        count: usize,
        /// How many ranks there are.
        ranks: u32,
    },
    /// The buffer cannot be cut, the count is too large, or the root is no rank.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The bytes are not whole elements.
    #[error(transparent)]
    Reduce(#[from] ReduceError),
    /// An earlier operation failed, and with it the communicator.
    #[error("the communicator has ended, for {first}; make a new one")]
    Ended {
        /// The first error.
        first: Arc<CollectiveError>,
    },
    /// The communicator was closed before all that it sent had arrived.
    #[error(
        "the deadline passed before all that was sent had arrived, and it may be lost; see whether the neighbours run"
    )]
    Unsent,
    /// The deadline passed before the operation began, for instance behind others; nothing of it was sent. The others may
    /// have begun it, so that the communicator ends on all ranks.
    #[error(
        "the deadline passed before the operation could begin; wait for operations begun earlier first, or give it more \
         time"
    )]
    Queued,
    /// As many operations are pending as can be; the buffers come back, and the communicator goes on.
    #[error("{max} operations are pending, and there can be no more; wait for one of them")]
    TooManyOperations {
        /// How many there can be.
        max: usize,
    },
    /// Bytes that a region does not have.
    #[error("bytes {start} to {end} of a region of {len}; pass a range that it has")]
    Range {
        /// The first byte.
        start: usize,
        /// One beyond the last.
        end: usize,
        /// Bytes of the region.
        len: usize,
    },
    /// Memory of another engine, whose device this one cannot reach it by.
    #[error("the memory is registered with another engine; allocate or register it with this one's")]
    ForeignMemory,
    /// Memory for the operation could not be had.
    #[error("memory for the operation could not be had: {source}")]
    Memory {
        /// Why.
        source: Arc<AllocError>,
    },
    /// Nothing goes over a rail any more: another rank has lost it, and says there why, or it was behind the others for too
    /// long.
    #[error(
        "rail {rail} is given up, since another rank has lost it or it was too far behind; see its devices, ports and network"
    )]
    RailLost {
        /// The rail's number.
        rail: usize,
    },
    /// The engine cannot go on.
    #[error(transparent)]
    Engine(#[from] EngineError),
}
