//! Errors of an engine and of its lanes: while they are set up, and while they are driven.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rdma_core::QpNum;
use rdma_core::error::{
    ConnectError, CreateError, FenceError, NoUsableGid, PollError, PostError, QueryError, RangeError,
    RegisterError,
};

use crate::link::{BlobError, HandshakeError, LaneFailure};

/// An engine, or a lane to a peer, could not be set up.
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
    /// The engine's thread could not be started.
    #[error(
        "the engine's thread could not be started: {source}; raise the limit on threads (`ulimit -u`, pids.max), or drive the engine yourself"
    )]
    Thread {
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
    /// The two processes did not meet.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The peer did not connect.
    #[error(
        "the peer did not say within {waited:.1?} that it is connected; see whether it runs, and has this end's blob"
    )]
    PeerSilent {
        /// How long was waited.
        waited: Duration,
    },
    /// The lane ended before the peer had said anything.
    #[error("the peer was lost before it was connected ({cause}); see whether it runs, and connect anew")]
    PeerLost {
        /// What became of the lane.
        cause: LaneFailure,
    },
    /// What the peer says of its pool makes no sense.
    #[error("the peer's {field} makes no sense; run one release on both sides")]
    Peer {
        /// What is wrong.
        field: &'static str,
    },
    /// Peers would be held for lost that are not.
    #[error(
        "peers that are silent for {peer_timeout:?} would count as lost, and say that they live every {heartbeat:?}; \
         give them at least 1 s and two heartbeats, of at least 1 ms"
    )]
    PeerTimeout {
        /// How often a side says that it lives.
        heartbeat: Duration,
        /// How long the other may say nothing.
        peer_timeout: Duration,
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
