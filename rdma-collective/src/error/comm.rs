//! Errors of setting links up and of driving them.

use std::io;
use std::sync::Arc;

use rdma_core::QpNum;
use rdma_core::error::{
    ConnectError, CreateError, FenceError, NoUsableGid, PollError, PostError, QueryError, RangeError,
    RegisterError,
};

use super::{BlobError, BootstrapError, HandshakeError, LayoutError};
use crate::kv::PoolUse;

/// An engine, a communicator or a link could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The device does not answer.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// No address to send from.
    #[error(transparent)]
    Gid(#[from] NoUsableGid),
    /// A queue could not be created.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// Memory could not be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// A queue pair could not be connected.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A receive could not be posted.
    #[error(transparent)]
    Post(PostError),
    /// Memory could not be divided.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// What the peer said of itself cannot be used.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// A descriptor could not be had.
    #[error("{what} could not be watched: {source}; raise the limit on open files (`ulimit -n`)")]
    Descriptor {
        /// Of what.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The sizes of staging memory do not make sense, or differ from the peer's.
    #[error(
        "{slots} slots of {slot_bytes} bytes are no mailbox that both sides have; use 1 to 4096 slots, alike on all ranks"
    )]
    Mailbox {
        /// Slots.
        slots: u16,
        /// Bytes of each.
        slot_bytes: usize,
    },
    /// The ranks did not meet.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// A rank has another option than this one.
    #[error("{field} is {ours} here and {theirs} on rank {rank}; start all ranks alike")]
    Differs {
        /// What differs.
        field: &'static str,
        /// The other rank.
        rank: u32,
        /// Its value here.
        ours: String,
        /// Its value there.
        theirs: String,
    },
    /// What a rank says of itself makes no sense.
    #[error("what rank {rank} says of itself makes no sense; run one release on all ranks")]
    Introduction {
        /// The rank.
        rank: u32,
    },
    /// The two processes did not meet.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
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
    /// What the peer says of its pool makes no sense.
    #[error("the peer's {field} makes no sense; run one release on both sides")]
    Peer {
        /// What is wrong.
        field: &'static str,
    },
    /// The lane was ended meanwhile.
    #[error("the lane was ended before it was connected; set the link up anew")]
    LaneGone,
}

/// The engine, and with it everything on it, cannot go on.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The device lost completions or cannot be trusted.
    #[error("the device failed: {source}")]
    Device {
        /// What it did.
        source: Arc<PollError>,
    },
    /// A lane could not be ended: its memory is kept for ever.
    #[error("the lane of queue pair {qp_num} could not be ended: {source}")]
    Fence {
        /// Its queue pair.
        qp_num: QpNum,
        /// What the device said.
        source: Arc<FenceError>,
    },
}
