//! Where a queue pair is found: what two peers tell each other before they connect.

use std::fmt;

use crate::{Gid, Mtu, Psn, QpNum};

/// The local identifier of a port on an InfiniBand fabric; 0 on RoCE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Lid(pub u16);

impl fmt::Display for Lid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// All that a peer must know of a queue pair to connect to it.
///
/// It holds both kinds of address: on InfiniBand the [`Lid`] routes inside the subnet, on
/// RoCE the [`Gid`] does. Carry it out of band (a TCP socket, a store), in a format of
/// your own that has a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The queue pair's number, unique on its device.
    pub qp_num: QpNum,
    /// The sequence number of the first packet that this queue pair sends.
    pub psn: Psn,
    /// The port's local identifier; `Lid(0)` on RoCE.
    pub lid: Lid,
    /// The GID that this end sends from.
    pub gid: Gid,
    /// The port's active MTU; the smaller of both ends is used.
    pub mtu: Mtu,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LID {} QPN {} PSN {} GID {}", self.lid, self.qp_num, self.psn, self.gid)
    }
}

/// How a peer's memory is reached; schedules choose by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PeerAccess {
    /// The peer's memory is mapped here: a write is a copy by this CPU. A connection that comes upon memory that cannot be
    /// mapped becomes a `Stream`.
    Mapped,
    /// A device writes it, no CPU takes part.
    Rdma,
    /// It goes through a byte stream, and the peer's CPU places it.
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
