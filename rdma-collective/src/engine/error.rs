//! Errors of an engine and of its lanes: [`SetupError`] while they are set up, [`EngineError`] while they are driven.
//!
//! The end of a single lane is no engine error; see [`LaneFailure`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rdma_core::QpNum;
use rdma_core::error::{
    ConnectError, CreateError, FenceError, Forked, NoUsableGid, PollError, PostError, QueryError, RangeError,
    RegisterError,
};

use crate::link::{BlobError, HandshakeError, LaneFailure};

/// The reason why an engine, or a lane to a peer, could not be set up.
///
/// Raised by [`Engine::new`](crate::engine::Engine::new).
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The device did not answer a query.
    #[error("{0}")]
    Query(#[from] QueryError),
    /// No GID of the port can be used to send from.
    #[error("{0}")]
    Gid(#[from] NoUsableGid),
    /// A queue could not be created; most often a limit of the device.
    #[error("{0}")]
    Create(#[from] CreateError),
    /// Memory could not be registered; most often the limit on locked memory.
    #[error("{0}")]
    Register(#[from] RegisterError),
    /// A queue pair could not be connected.
    #[error("{0}")]
    Connect(#[from] ConnectError),
    /// A receive could not be posted.
    #[error(transparent)]
    Post(PostError),
    /// A range lies outside its memory.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// The blob that the peer handed over cannot be used.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// A descriptor could not be created, or not be watched.
    #[error("{what} could not be watched: {source}; raise the limit on open files (`ulimit -n`)")]
    Descriptor {
        /// The thing that was to be watched.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The engine's thread could not be started.
    #[error(
        "the engine's thread could not be started: {source}; raise the limit on threads (`ulimit -u`, pids.max), or drive the engine yourself"
    )]
    Thread {
        /// The system's reason.
        source: io::Error,
    },
    /// The sizes of the mailbox are out of range, or differ from the peer's.
    #[error(
        "{slots} slots of {slot_bytes} bytes are no mailbox that both sides have; use 1 to 4096 slots, alike on all ranks"
    )]
    Mailbox {
        /// Number of slots.
        slots: u16,
        /// Bytes of one slot, without its header.
        slot_bytes: usize,
    },
    /// The handshake over TCP failed, so the two processes did not meet.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The peer did not report in time that its end of the lane is connected.
    #[error(
        "the peer did not report within {waited:.1?} that its end is connected; see whether it runs and has this end's blob"
    )]
    PeerSilent {
        /// Time that this side waited.
        waited: Duration,
    },
    /// The lane ended before the peer had reported that its end is connected.
    #[error("the peer was lost before it was connected ({cause}); see whether it runs, and connect anew")]
    PeerLost {
        /// The reason why the lane ended.
        cause: LaneFailure,
    },
    /// The peer sent something that cannot be right, such as an unusable description of its pool.
    #[error("the peer sent a {field} that cannot be right; run one release on both sides")]
    Peer {
        /// The part that is wrong.
        field: &'static str,
    },
    /// A device of the engine has failed, so that it gets no further lanes.
    #[error("device {number} of the engine has failed; see its error in the log, and make another engine")]
    DeviceFailed {
        /// The number of the device in the engine, from 0.
        number: usize,
    },
    /// An engine works on 1 to 8 devices.
    #[error("an engine works on 1 to {max} devices, not on {count}; name as many on all ranks")]
    Devices {
        /// Number of devices.
        count: usize,
        /// The most that an engine works on.
        max: usize,
    },
    /// The timeout is so short that living peers would count as lost.
    #[error(
        "a peer_timeout of {peer_timeout:?} with heartbeats every {heartbeat:?} would take living peers for lost ones; \
         give it at least 1 s and two heartbeats, and heartbeats at least 1 ms"
    )]
    PeerTimeout {
        /// The interval between two heartbeats.
        heartbeat: Duration,
        /// The longest silence before a peer counts as lost.
        peer_timeout: Duration,
    },
    /// The lane was ended by this side before it was connected.
    #[error("the lane was ended before it was connected; set the link up anew")]
    LaneGone,
    /// This process was forked from the one that made the engine.
    #[error(transparent)]
    Forked(#[from] Forked),
}

/// The reason why an engine, and with it everything on it, cannot go on.
///
/// Raised by [`Engine::drive`](crate::engine::Engine::drive), and a part of the errors of everything on the engine.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The device lost completions, or failed otherwise: nothing that it reports can be relied on any more.
    #[error("the device failed: {source}")]
    Device {
        /// The failure of the device.
        source: Arc<PollError>,
    },
    /// A lane could not be ended. Its memory is never used again, because the device may still write to it.
    #[error("the lane of queue pair {qp_num} could not be ended: {source}")]
    Fence {
        /// The queue pair of the lane.
        qp_num: QpNum,
        /// The reason of the device.
        source: Arc<FenceError>,
    },
    /// This process was forked from the one that made the engine.
    #[error(transparent)]
    Forked(#[from] Forked),
}
