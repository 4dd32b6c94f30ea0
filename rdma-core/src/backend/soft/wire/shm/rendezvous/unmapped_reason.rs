//! Why a peer is not, or no longer, reached through mapped memory.

use std::io;

use super::super::MapRefused;
use super::super::remote_responder::SegmentsRefused;
use super::MAPPINGS_MAX;
use super::frame::{FrameError, Refusal};
use crate::error::limit_advice;

/// See the module. Each reads as the end of "the peer is not mapped: …".
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnmappedReason {
    #[error("no process of this host and network namespace listens for its GID")]
    NoNeighbour,
    #[error("too many wait at its listener")]
    Busy,
    #[error("it runs as user {peer}, and this process as {own}: run both as one user")]
    OtherUser { own: u32, peer: u32 },
    #[error(
        "both users read as {uid}, as do all that a user namespace does not have: run both as another one, of one namespace"
    )]
    OverflowUser { uid: u32 },
    #[error("it is of another pid namespace: let both see each other's process numbers")]
    OtherPidNamespace,
    #[error("its process cannot be watched (pidfd): {0}; {mend}",
        mend = limit_advice(.0).unwrap_or("Linux 5.3 and later can, where pidfd_open is allowed"))]
    NoPidfd(#[source] io::Error),
    #[error("it refused: {0}")]
    Refused(Refusal),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("a frame came with {came} descriptors instead of {wanted}")]
    Descriptors { came: usize, wanted: usize },
    #[error("more descriptors came than any frame has")]
    TooManyDescriptors,
    #[error(
        "this process has no descriptors left to take its memory: raise the limit on open files (ulimit -n)"
    )]
    OutOfDescriptors,
    #[error(
        "three quarters of the descriptors that this process may have are in use, and the others are left to the other wire: raise the limit on open files (ulimit -n)"
    )]
    FewDescriptors,
    #[error("its doorbell would block whoever rings it")]
    BlockingDoorbell,
    #[error("its doorbell is no eventfd, or /proc, which tells that, is not mounted")]
    NoDoorbell,
    #[error(
        "the peers of this host share more memories than a process maps of them, {MAPPINGS_MAX}: share fewer and larger ones"
    )]
    TooMuchMemory,
    #[error("it replaced pages of a memory that it has not told of")]
    UnknownMemory,
    #[error("{what} that it handed over: {source}")]
    Segment {
        what: &'static str,
        #[source]
        source: MapRefused,
    },
    #[error(transparent)]
    RemoteResponder(#[from] SegmentsRefused),
    #[error(
        "a request names memory of it that was not allocated by this library and is not shared in place, so it cannot be mapped"
    )]
    ForeignMemory,
    #[error("it closed the connection")]
    Closed,
    #[error("its process has ended")]
    Dead,
    #[error("it took too long")]
    Overdue,
    #[error("too many others came after it")]
    Crowded,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl UnmappedReason {
    /// Whether the other end has simply gone; nothing is wrong with how it can be reached.
    pub(crate) fn is_departure(&self) -> bool {
        matches!(self, Self::Closed | Self::Dead | Self::Overdue | Self::Crowded)
    }
}
