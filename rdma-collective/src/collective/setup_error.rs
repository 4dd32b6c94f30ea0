//! Errors of making a communicator.

use super::CollectiveError;
use crate::bootstrap::BootstrapError;
use crate::engine::SetupError;

/// A communicator could not be made, on this rank or on another one.
///
/// Raised by [`Communicator::new`](crate::collective::Communicator::new).
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CommunicatorError {
    /// A lane, or its memory, could not be set up on this rank.
    #[error(transparent)]
    Setup(SetupError),
    /// The ranks did not meet.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// An operation of the communicator that is split failed, and with it that communicator.
    #[error(transparent)]
    Parent(#[from] CollectiveError),
    /// A rank has another option than this one.
    #[error("{field} is {ours} here and {theirs} on rank {rank}; start all ranks alike")]
    Differs {
        /// The option that differs.
        field: &'static str,
        /// The other rank.
        rank: u32,
        /// The value on this rank.
        ours: String,
        /// The value on the other rank.
        theirs: String,
    },
    /// Another rank could not be set up, and has said why.
    #[error("rank {rank} could not be set up: {reason}; mend it there")]
    Rank {
        /// The rank that failed.
        rank: u32,
        /// The error on that rank.
        reason: String,
    },
    /// A rank sent an introduction that this release cannot read.
    #[error("the introduction of rank {rank} cannot be read; run one release on all ranks")]
    Introduction {
        /// The rank.
        rank: u32,
    },
    /// A link cannot have so many lanes.
    #[error("{count} lanes; ask for at least one on each device of the engine, and at most {max} in all")]
    Lanes {
        /// The number of lanes that the options ask for, on all devices of the engine together.
        count: u8,
        /// The largest number of lanes.
        max: u8,
    },
}

impl<E: Into<SetupError>> From<E> for CommunicatorError {
    fn from(error: E) -> Self {
        Self::Setup(error.into())
    }
}
