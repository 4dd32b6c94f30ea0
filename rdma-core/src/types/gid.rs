//! Global identifiers (GIDs), the addresses of ports.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::names::names;

/// A global identifier of a port: 16 bytes, written like an IPv6 address.
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
    /// Returns whether all bytes are 0, which marks an empty entry of a GID table.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }

    /// Returns whether the GID is in `fe80::/10`, which no router forwards.
    #[must_use]
    pub fn is_link_local(self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }

    /// Returns the embedded IPv4 address if the GID is in `::ffff:0:0/96`.
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

/// The wire format of packets that are sent from a GID.
///
/// A part of [`GidEntry`].
#[doc(alias = "ibv_gid_type")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GidType(pub u32);

names! {
    GidType, "GID type":

    /// InfiniBand packets.
    INFINIBAND = 0, "IB";
    /// RoCE v1: Ethernet frames with an EtherType of their own, which no router forwards.
    ROCE_V1 = 1, "RoCE v1";
    /// RoCE v2: UDP packets to port 4791, which routers forward.
    ROCE_V2 = 2, "RoCE v2";
}

/// A filled entry of a port's GID table. See `ibv_query_gid_table(3)`.
///
/// Returned by [`Context::gids`](crate::Context::gids), for [`gid::choose`](crate::gid::choose).
#[doc(alias = "ibv_gid_entry")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidEntry {
    /// The index of the entry in the table; `NCCL_IB_GID_INDEX` and `-x` of perftest take the same number.
    pub index: u32,
    /// The identifier.
    pub gid: Gid,
    /// The wire format of packets that are sent from this GID.
    pub kind: GidType,
    /// The network interface of the GID; `None` when the interface is not in this network namespace.
    pub netdev: Option<String>,
}

impl GidEntry {
    pub(crate) fn new(index: u32, gid: Gid, kind: GidType, netdev: Option<String>) -> Self {
        Self { index, gid, kind, netdev }
    }
}
