//! Addresses of queue pairs: the values that two peers exchange before they connect.

use std::fmt;

use crate::{Gid, Mtu, Psn, QpNum};

/// The local identifier (LID) of a port on an InfiniBand fabric; 0 on RoCE.
///
/// A part of [`Endpoint`](crate::Endpoint).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Lid(pub u16);

impl fmt::Display for Lid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// Everything a peer must know about a queue pair to connect to it.
///
/// An endpoint holds both kinds of address: InfiniBand routes by the [`Lid`] inside a subnet, RoCE routes by
/// the [`Gid`]. Send it out of band (a TCP socket, a key-value store), in a format of your own that carries a
/// version.
///
/// Made by [`QueuePair::endpoint`](crate::QueuePair::endpoint); `examples/write.rs` exchanges two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The queue pair's number, unique on its device.
    pub qp_num: QpNum,
    /// The sequence number of the first packet that this queue pair will send.
    pub psn: Psn,
    /// The port's local identifier; `Lid(0)` on RoCE.
    pub lid: Lid,
    /// The GID that this end sends from, and that the peer sends to.
    pub gid: Gid,
    /// The active MTU of the port; a connection uses the smaller one of both ends.
    pub mtu: Mtu,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LID {} QPN {} PSN {} GID {}", self.lid, self.qp_num, self.psn, self.gid)
    }
}

/// The path by which a peer's memory is reached; collective schedules choose by it.
///
/// See [`QueuePair::peer_access`](crate::QueuePair::peer_access).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PeerAccess {
    /// The peer's memory is mapped into this process, so a write is a copy by this CPU. The connection
    /// becomes a `Stream` when it meets memory that cannot be mapped.
    Mapped,
    /// A device writes the peer's memory; no CPU takes part.
    Rdma,
    /// The bytes go through a byte stream, and the peer's CPU writes them to its memory.
    Stream,
}

impl fmt::Display for PeerAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mapped => "mapped",
            Self::Rdma => "rdma",
            Self::Stream => "stream",
        })
    }
}
