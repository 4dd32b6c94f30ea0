//! Why a peer is not, or no longer, reached through mapped memory.

use std::io;

use super::super::MapRefused;
use super::super::port::PortRefused;
use super::MEMORIES_MAX;
use super::frame::{FrameError, Refusal};

/// See the module. Each reads as the end of "the peer is not mapped: …".
#[derive(Debug, thiserror::Error)]
pub(crate) enum Reason {
    #[error("no process of this host and network namespace listens for its GID")]
    NoNeighbour,
    #[error("too many wait at its listener")]
    Busy,
    #[error("it runs as user {peer}, and this process as {own}: run both as one user")]
    OtherUser { own: u32, peer: u32 },
    #[error("its process cannot be watched (pidfd): {0}; let both see each other's process numbers")]
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
    #[error("its doorbell would block whoever rings it")]
    BlockingDoorbell,
    #[error("its doorbell is no eventfd, or /proc, which tells that, is not mounted")]
    NoDoorbell,
    #[error("it shares more memories than this process maps of a peer: {MEMORIES_MAX}")]
    TooMuchMemory,
    #[error("it replaced pages of a memory that it has not told of")]
    Unknown,
    #[error("{what} that it handed over: {source}")]
    Segment {
        what: &'static str,
        #[source]
        source: MapRefused,
    },
    #[error(transparent)]
    Port(#[from] PortRefused),
    #[error(
        "a request names memory of it that was not allocated by this library and is not shared in place, so it cannot be mapped"
    )]
    Foreign,
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

impl Reason {
    /// Whether the other end has simply gone; nothing is wrong with how it can be reached.
    pub(crate) fn is_departure(&self) -> bool {
        matches!(self, Self::Closed | Self::Dead | Self::Overdue | Self::Crowded)
    }
}
