//! Errors of setting a link up between two pools.

use crate::engine::SetupError;
use crate::kv::PoolUse;
use crate::kv::layout::LayoutError;

/// A link between a source pool and a destination pool could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// A lane, or its memory, could not be set up, or the two processes did not meet.
    #[error(transparent)]
    Setup(SetupError),
    /// The pools of both ends cannot exchange blocks.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Both ends have a pool for the same use.
    #[error("both ends have a {0:?} pool; connect a source with a destination")]
    SameUse(PoolUse),
    /// This end's pool is for another use.
    #[error("this end needs a {needed:?} pool and was given a {given:?} pool; allocate one for that use")]
    WrongUse {
        /// What it needs.
        needed: PoolUse,
        /// What it was given.
        given: PoolUse,
    },
    /// The pool is registered elsewhere.
    #[error("the pool is of another engine than this link; make both on one engine")]
    OtherEngine,
    /// The peer's blob is of an end that was before this one, or will be after it.
    #[error(
        "the peer's blob is of epoch {theirs}, this end of epoch {ours}; exchange blobs that are made for each other"
    )]
    OtherEpoch {
        /// The epoch of this end.
        ours: u32,
        /// The blob's.
        theirs: u32,
    },
    /// No device reaches one of the other kind.
    #[error(
        "this end has {}, and the peer has not; choose devices of one kind on both sides",
        if *.soft { "the software device" } else { "an RDMA device" }
    )]
    OtherDevice {
        /// Whether it is this end that has the software device.
        soft: bool,
    },
}

impl<E: Into<SetupError>> From<E> for LinkError {
    fn from(error: E) -> Self {
        Self::Setup(error.into())
    }
}
