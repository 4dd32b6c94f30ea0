//! Global identifiers: the addresses of ports.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A global identifier: 16 bytes, written like an IPv6 address.
///
/// ```
/// use rdma_core::Gid;
/// let gid = Gid::from(std::net::Ipv4Addr::new(10, 9, 0, 1));
/// assert_eq!(gid.to_string(), "::ffff:10.9.0.1");
/// assert!(!gid.is_link_local());
/// ```
#[doc(alias = "ibv_gid")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Whether the table's entry is empty.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }

    /// Whether it is of `fe80::/10`, which no router passes on.
    #[must_use]
    pub fn is_link_local(self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }

    /// The IPv4 address inside, when it is of `::ffff:0:0/96`.
    #[must_use]
    pub fn ipv4_mapped(self) -> Option<Ipv4Addr> {
        Ipv6Addr::from(self.0).to_ipv4_mapped()
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(address: Ipv4Addr) -> Self {
        Self(address.to_ipv6_mapped().octets())
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

/// How packets sent from a GID look on the wire.
#[doc(alias = "ibv_gid_type")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GidType(pub u32);

impl GidType {
    /// InfiniBand.
    pub const INFINIBAND: Self = Self(0);
    /// RoCE v1: Ethernet frames of their own type; no router passes them.
    pub const ROCE_V1: Self = Self(1);
    /// RoCE v2: UDP, port 4791.
    pub const ROCE_V2: Self = Self(2);
}

impl fmt::Display for GidType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::INFINIBAND => f.write_str("IB"),
            Self::ROCE_V1 => f.write_str("RoCE v1"),
            Self::ROCE_V2 => f.write_str("RoCE v2"),
            Self(other) => write!(f, "GID type {other}"),
        }
    }
}

/// One filled entry of a port's GID table.
#[doc(alias = "ibv_gid_entry")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidEntry {
    /// Its place in the table, what `NCCL_IB_GID_INDEX` and perftest's `-x` count.
    pub index: u32,
    /// The identifier.
    pub gid: Gid,
    /// How its packets look.
    pub kind: GidType,
    /// The network interface behind it; `None` when it is not in this network namespace.
    pub netdev: Option<String>,
}

impl GidEntry {
    pub(crate) fn new(index: u32, gid: Gid, kind: GidType, netdev: Option<String>) -> Self {
        Self { index, gid, kind, netdev }
    }
}
