//! Errors of setting up a link between two pools.

use crate::engine::SetupError;
use crate::kv::PoolUse;
use crate::kv::layout::LayoutError;

/// The error of a link between a source pool and a destination pool that could not be set up.
///
/// Raised by [`Decode::new`](crate::kv::Decode::new) and [`Prefill::new`](crate::kv::Prefill::new).
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// A lane or its memory could not be set up, or the two processes did not meet.
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
        /// Use that this end needs.
        needed: PoolUse,
        /// Use of the pool that it was given.
        given: PoolUse,
    },
    /// The pool is registered on another engine than the link's.
    #[error(
        "the pool is registered on another engine than this link; make the pool and the link on one engine"
    )]
    OtherEngine,
    /// A destination was to be [strict](crate::kv::LinkOptions::strict) on a device whose keys have one range each, and
    /// pin memory.
    #[error(
        "an RDMA device has no keys of single grants, so the link cannot be strict; \
         leave LinkOptions::strict off and give peers that do not trust each other pools of their own, \
         or use the software device"
    )]
    NotStrict,
    /// The link was to be on a [rail](crate::kv::LinkOptions::rail) that the engine does not have.
    #[error(
        "the link is to be on rail {rail}, and the engine has {rails} (numbered from 0); \
         lower LinkOptions::rail, or make the engine over more devices"
    )]
    NoRail {
        /// Rail of the options.
        rail: usize,
        /// Rails of the engine.
        rails: usize,
    },
    /// The ends have devices of different kinds, software and RDMA, which do not reach each other.
    #[error(
        "this end has {}, and the peer has the other kind; choose devices of one kind on both sides",
        if *.soft { "the software device" } else { "an RDMA device" }
    )]
    OtherDevice {
        /// Whether this end has the software device.
        soft: bool,
    },
}

impl<E: Into<SetupError>> From<E> for LinkError {
    fn from(error: E) -> Self {
        Self::Setup(error.into())
    }
}
