//! Errors of one link: an unusable blob, a failed handshake, and the end of a lane.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rdma_core::{CompletionStatus, Failure, Gid, QpNum};

/// The reason why bytes are not the blob of the peer that was meant.
///
/// A part of [`SetupError`](crate::engine::SetupError).
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlobError {
    /// The bytes do not begin like a blob.
    #[error("these bytes are no blob of this library; hand over what the peer exported, unchanged")]
    NotABlob,
    /// The blob is cut off: bytes are missing at the end.
    #[error("the blob is cut off after {len} bytes; hand over all that the peer exported")]
    Truncated {
        /// Bytes that are there.
        len: usize,
    },
    /// The checksum is wrong: the blob was altered on the way.
    #[error("the blob was altered on its way; carry it as bytes, not as text")]
    Altered,
    /// The peer's release writes another version of the format.
    #[error("the peer's blob has version {theirs}, this side reads version {ours}; run one release on both")]
    OtherVersion {
        /// The version that this side reads.
        ours: u16,
        /// The version of the blob.
        theirs: u16,
    },
    /// The blob belongs to a process of another job.
    #[error("the blob is of another job; give all processes of the job the same token, and each job its own")]
    OtherJob,
    /// The blob is for another kind of link.
    #[error("the blob is for a link of kind {theirs}, this one is of kind {ours}; connect like with like")]
    OtherKind {
        /// The kind that was expected.
        ours: u16,
        /// The kind of the blob.
        theirs: u16,
    },
    /// A field has an impossible value although the checksum is right: the peer wrote it so.
    #[error("the blob's {field} cannot be; run one release on both sides")]
    Malformed {
        /// The field.
        field: &'static str,
    },
    /// The link has more regions or payload than a blob can hold.
    #[error("the blob would be longer than {limit} bytes; export fewer regions")]
    TooLong {
        /// The longest blob, in bytes.
        limit: usize,
    },
}

/// The reason why two processes did not meet over TCP.
///
/// A part of [`SetupError`](crate::engine::SetupError).
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The listener does not accept connections.
    #[error("the listener does not accept: {source}; give one that listens")]
    Listen {
        /// The system's reason.
        source: io::Error,
    },
    /// No process with the job's token connected in time.
    #[error(
        "no process of this job connected within {waited:.1?}; see whether the peer runs and has the same token"
    )]
    NobodyCame {
        /// Time that this side waited.
        waited: Duration,
    },
    /// Nobody accepted a connection at the address in time.
    #[error(
        "nobody listens at {address} within {waited:.1?}: {source}; see whether the peer runs, and for a firewall"
    )]
    Unreachable {
        /// The address.
        address: SocketAddr,
        /// Time for which it was tried.
        waited: Duration,
        /// Why the last try failed.
        source: io::Error,
    },
    /// The peer stopped in the middle of the handshake.
    #[error(
        "{peer} said nothing more until the deadline; see whether that process is stopped, or another program"
    )]
    Silent {
        /// The peer.
        peer: SocketAddr,
    },
    /// The connection ended in the middle of the handshake.
    #[error("the connection to {peer} was lost: {source}; see why its process ended")]
    Lost {
        /// The peer.
        peer: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The other end of the connection is another program.
    #[error("{peer} is no process of this library; check address and port")]
    Garbage {
        /// The peer.
        peer: SocketAddr,
    },
    /// The peer's release speaks another version of the handshake.
    #[error(
        "{peer} speaks version {theirs} of the handshake, this side version {ours}; run one release on both"
    )]
    OtherVersion {
        /// The peer.
        peer: SocketAddr,
        /// The version of this side.
        ours: u16,
        /// The version of the peer.
        theirs: u16,
    },
    /// The peer has another job's token.
    #[error("{peer} is of another job; give both processes the same token, and each job its own port")]
    OtherToken {
        /// The peer.
        peer: SocketAddr,
    },
}

/// The name of the peer at the other end of a link, for errors and logs.
///
/// [`HandshakeError`] names a peer by its address alone, because no blob has come yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PeerName {
    /// The address at which the handshake met the peer.
    Address(SocketAddr),
    /// A peer that is known by a name. In an `Arc`, because errors have the name of their peer and are small.
    Node(Arc<NamedPeer>),
    /// The process and the device that the peer's blob names.
    Process {
        /// The pid of the peer, or 0 if it is not known.
        pid: u32,
        /// The GID of the peer's device.
        gid: Gid,
    },
}

/// A peer with a name, such as a node.
///
/// A part of [`PeerName`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamedPeer {
    /// The name.
    pub name: String,
    /// The address at which the handshake met the peer.
    pub address: SocketAddr,
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Node(peer) => write!(f, "node {} ({})", peer.name, peer.address),
            Self::Process { pid: 0, gid } => write!(f, "GID {gid}"),
            Self::Process { pid, gid } => write!(f, "GID {gid}, process {pid}"),
        }
    }
}

/// The name of a lane (one queue pair to one peer), for errors and logs.
///
/// The errors of collectives and of KV transfers name it beside a [`LaneFailure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LaneName {
    /// The number of this side's queue pair.
    pub qp_num: QpNum,
    /// The number of lanes that there were to this peer before. It tells a lane from an earlier one.
    pub epoch: u32,
}

impl fmt::Display for LaneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lane {} of epoch {}", self.qp_num, self.epoch)
    }
}

/// The reason why a lane has ended.
///
/// The errors of collectives and of KV transfers have it beside the [`LaneName`].
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LaneFailure {
    /// A request on the lane failed.
    #[error("{0}")]
    Request(Failure),
    /// The peer closed the lane in good order.
    #[error("the peer has closed the lane")]
    Closed,
    /// The peer broke the protocol.
    #[error("the peer broke the protocol ({0}); run one release on both sides")]
    Violation(Arc<str>),
    /// The peer's messages belong to an earlier or a later lane.
    #[error("the peer is at epoch {theirs} of this link, this side at {ours}; connect both ends anew")]
    OtherEpoch {
        /// The epoch that this side expects.
        ours: u32,
        /// The epoch of the message.
        theirs: u32,
    },
    /// The device refused to take a request.
    #[error("{0}")]
    Refused(Arc<str>),
    /// The device failed, and with it every lane on it.
    #[error("{0}")]
    Device(Arc<str>),
    /// The peer's process (on this host) has ended without closing the lane.
    #[error("process {pid} of the peer has ended; see the end of its log, and the kernel's log")]
    Died {
        /// The pid of the peer.
        pid: u32,
    },
    /// The peer's process (on another host) has ended without closing the lane: the connection that it held has closed.
    #[error(
        "the connection to the peer's process is closed; see the end of its log, and whether its host runs"
    )]
    Disconnected,
    /// The peer's process has sent nothing for longer than `peer_timeout`, not even a heartbeat.
    #[error(
        "the peer's process has sent nothing for {since:.1?}; see whether that process is stopped, starved or cut off"
    )]
    Silent {
        /// The time since the last sign of life.
        since: Duration,
    },
    /// This side ended the lane.
    #[error("this side ended the lane: a transfer on it missed its deadline, or its end was dropped")]
    Fenced,
}

impl LaneFailure {
    /// Whether a device refused an access for its key, range or rights.
    pub(crate) fn is_refused_access(&self) -> bool {
        let access = [CompletionStatus::REM_ACCESS_ERR, CompletionStatus::LOC_ACCESS_ERR];
        matches!(self, Self::Request(failure) if access.contains(&failure.status))
    }

    /// The name of the variant as the value of a label.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Request(_) => "request",
            Self::Closed => "closed",
            Self::Violation(_) => "violation",
            Self::OtherEpoch { .. } => "other_epoch",
            Self::Refused(_) => "refused",
            Self::Device(_) => "device",
            Self::Died { .. } => "died",
            Self::Disconnected => "disconnected",
            Self::Silent { .. } => "silent",
            Self::Fenced => "this_side",
        }
    }
}
