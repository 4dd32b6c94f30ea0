//! The reasons for which a peer is not, or no longer, reached through mapped memory.

use std::io;

use super::super::MapRefused;
use super::super::remote_responder::SegmentsRefused;
use super::MAPPINGS_MAX;
use super::frame::{FrameError, Refusal};
use crate::error::limit_advice;

/// Why a peer is not mapped. Each text reads after "the peer is not mapped: ".
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnmappedReason {
    #[error("no process of this host and network namespace listens for the peer's GID")]
    NoNeighbour,
    #[error("too many connections wait at the peer's listener")]
    Busy,
    #[error("the peer runs as user {peer}, and this process as {own}: run both as one user")]
    OtherUser { own: u32, peer: u32 },
    #[error(
        "both processes read as user {uid}, as every user outside the user namespace does: run both as one user that the namespace has"
    )]
    OverflowUser { uid: u32 },
    #[error("the peer is in another pid namespace: let both processes see each other's process numbers")]
    OtherPidNamespace,
    #[error("the peer's process cannot be watched (pidfd): {0}; {mend}",
        mend = limit_advice(.0).unwrap_or("Linux 5.3 and later can, where pidfd_open is allowed"))]
    NoPidfd(#[source] io::Error),
    #[error("the peer refused: {0}")]
    Refused(Refusal),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("a frame came with {came} descriptors instead of {wanted}")]
    Descriptors { came: usize, wanted: usize },
    #[error("a frame came with more descriptors than any frame has")]
    TooManyDescriptors,
    #[error(
        "this process has no descriptors left to take the peer's memory: raise the limit on open files (ulimit -n)"
    )]
    OutOfDescriptors,
    #[error(
        "three quarters of the descriptors that this process may have are in use, and the rest is kept for TCP: raise the limit on open files (ulimit -n)"
    )]
    FewDescriptors,
    #[error("the peer's doorbell would block the thread that rings it")]
    BlockingDoorbell,
    #[error("the peer's doorbell is no eventfd, or /proc, which tells so, is not mounted")]
    NoDoorbell,
    #[error(
        "the peers of this host share more memories than this process maps ({MAPPINGS_MAX}): share fewer and larger ones"
    )]
    TooMuchMemory,
    #[error("the peer replaced pages of a memory that it did not announce")]
    UnknownMemory,
    #[error("{what} that the peer handed over: {source}")]
    Segment {
        what: &'static str,
        #[source]
        source: MapRefused,
    },
    #[error(transparent)]
    Segments(#[from] SegmentsRefused),
    #[error(
        "a request names memory of the peer that was neither allocated by this library nor shared in place, so it cannot be mapped"
    )]
    ForeignMemory,
    #[error("the peer closed the connection")]
    Closed,
    #[error("the peer's process has ended")]
    Dead,
    #[error("the peer, or the queue pair that it names, was not ready in time")]
    Overdue,
    #[error("too many newer connections wait at the listener")]
    Crowded,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl UnmappedReason {
    /// Whether the other end has simply gone: nothing prevents it from being mapped when it comes back.
    pub(crate) fn is_departure(&self) -> bool {
        matches!(self, Self::Closed | Self::Dead | Self::Overdue | Self::Crowded)
    }
}
