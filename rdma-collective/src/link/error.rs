//! Errors of one link: what its blob may be, and how a lane ends.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rdma_core::{Failure, Gid, QpNum};

/// Bytes are not the other end of the link that was meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlobError {
    /// Something else altogether.
    #[error("these bytes are no blob of this library; hand over what the peer exported, unchanged")]
    NotABlob,
    /// Bytes are missing at the end.
    #[error("the blob is cut off after {len} bytes; hand over all that the peer exported")]
    Truncated {
        /// Bytes there are.
        len: usize,
    },
    /// The checksum does not hold.
    #[error("the blob was altered on its way; carry it as bytes, not as text")]
    Altered,
    /// The peer's release has another format.
    #[error("the peer's blob has version {theirs}, this side reads version {ours}; run one release on both")]
    OtherVersion {
        /// The version this side reads.
        ours: u16,
        /// The blob's.
        theirs: u16,
    },
    /// The peer belongs to another job.
    #[error("the blob is of another job; give all processes of the job the same token, and each job its own")]
    OtherJob,
    /// The peer means another use.
    #[error("the blob is for a link of kind {theirs}, this one is of kind {ours}; connect like with like")]
    OtherKind {
        /// The kind that was expected.
        ours: u16,
        /// The blob's.
        theirs: u16,
    },
    /// A field has a value that it cannot have, though the checksum holds.
    #[error("the blob's {field} cannot be; run one release on both sides")]
    Malformed {
        /// The field.
        field: &'static str,
    },
    /// More than a blob can hold.
    #[error("the blob would be longer than {limit} bytes; export fewer regions")]
    TooLong {
        /// The longest.
        limit: usize,
    },
}

/// Two processes did not meet over TCP.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The listener cannot be used.
    #[error("the listener does not accept: {source}; give one that listens")]
    Listen {
        /// What the system said.
        source: io::Error,
    },
    /// Nobody with the job's token connected.
    #[error(
        "no process of this job connected within {waited:.1?}; see whether the peer runs and has the same token"
    )]
    NobodyCame {
        /// How long was waited.
        waited: Duration,
    },
    /// Nobody listens there.
    #[error(
        "nobody listens at {address} within {waited:.1?}: {source}; see whether the peer runs, and for a firewall"
    )]
    Unreachable {
        /// The address.
        address: SocketAddr,
        /// How long was tried.
        waited: Duration,
        /// Why the last try failed.
        source: io::Error,
    },
    /// The peer says nothing more.
    #[error("{peer} said nothing more until the deadline; see whether it is stopped, or another program")]
    Silent {
        /// The peer.
        peer: SocketAddr,
    },
    /// The connection is lost.
    #[error("the connection to {peer} was lost: {source}; see why its process ended")]
    Lost {
        /// The peer.
        peer: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Something else listens or connects there.
    #[error("what is at {peer} is no process of this library; check address and port")]
    Garbage {
        /// The peer.
        peer: SocketAddr,
    },
    /// The peer runs another release.
    #[error(
        "{peer} speaks version {theirs} of the handshake, this side version {ours}; run one release on both"
    )]
    OtherVersion {
        /// The peer.
        peer: SocketAddr,
        /// Our version.
        ours: u16,
        /// The peer's.
        theirs: u16,
    },
    /// The peer is of another job.
    #[error("{peer} is of another job; give both processes the same token, and each job its own port")]
    OtherToken {
        /// The peer.
        peer: SocketAddr,
    },
}

/// Who is at the other end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PeerName {
    /// Where it was met.
    Address(SocketAddr),
    /// As its blob says.
    Process {
        /// The number of its process, where that is known; otherwise 0.
        pid: u32,
        /// The address of its device.
        gid: Gid,
    },
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Process { pid: 0, gid } => write!(f, "GID {gid}"),
            Self::Process { pid, gid } => write!(f, "GID {gid}, process {pid}"),
        }
    }
}

/// Names a lane: one queue pair to one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LaneName {
    /// The number of this side's queue pair.
    pub qp_num: QpNum,
    /// Counts the lanes that there have been to this peer.
    pub epoch: u32,
}

impl fmt::Display for LaneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lane {} of epoch {}", self.qp_num, self.epoch)
    }
}

/// Why nothing goes over a lane any more.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LaneFailure {
    /// A request on it failed.
    #[error("{0}")]
    Request(Failure),
    /// The peer closed it in good order.
    #[error("the peer has closed it")]
    Closed,
    /// The peer sent what it may not send.
    #[error("the peer broke the protocol ({0}); run one release on both sides")]
    Violation(Arc<str>),
    /// The peer speaks of a link that came before this one, or after it.
    #[error("the peer is at epoch {theirs} of this link, this side at {ours}; connect both ends anew")]
    OtherEpoch {
        /// This side's.
        ours: u32,
        /// The peer's.
        theirs: u32,
    },
    /// The device did not take a request.
    #[error("{0}")]
    Refused(Arc<str>),
    /// The device failed, and with it every lane.
    #[error("{0}")]
    Device(Arc<str>),
    /// The peer's process on this host has ended, and had not closed the lane.
    #[error("its process {pid} has ended; see what it said last, and the kernel's log")]
    Died {
        /// The process.
        pid: u32,
    },
    /// The connection that the peer's process on another host held has closed, and it had not closed the lane.
    #[error("the connection to its process is closed; see what it said last, and whether its host runs")]
    Disconnected,
    /// The peer's process says nothing any more.
    #[error("its process has said nothing for {since:.1?}; see whether it is stopped, starved or cut off")]
    Silent {
        /// For how long.
        since: Duration,
    },
    /// This side ended it.
    #[error("this side ended it: a transfer on it missed its deadline, or its end was dropped")]
    Fenced,
}
