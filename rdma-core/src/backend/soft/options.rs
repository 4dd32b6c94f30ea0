//! Options of a software device: its wire, its address and its faults.

use std::net::{IpAddr, Ipv4Addr};

use super::fault::FaultPlan;
use super::limits;

/// The wire by which a software device reaches its peers.
///
/// Set in [`SoftOptions`](crate::SoftOptions).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Wire {
    /// Direct copies inside this process, [shared memory](Self::Mapped) with processes of the same host and user, and
    /// TCP to every other. Where memory cannot be shared, TCP is taken, and the log says why.
    ///
    /// With [faults](SoftOptions::faults) no memory is shared, because faults are injected into messages.
    #[default]
    Auto,
    /// Direct copies inside this process. Peers of other processes are unreachable.
    Local,
    /// Shared memory with processes of the same host and user, and inside this process as well.
    ///
    /// A peer that cannot be reached in this way is an error that says why. The device of the peer must have this wire
    /// or [`Auto`](Self::Auto).
    ///
    /// Memory that the library did not allocate is shared only if it is [in place](crate::Memory::share_in_place). A
    /// connection that comes upon other memory goes on over TCP, and the log says so.
    ///
    /// A peer that is stopped in the middle of an access delays the deregistration of that memory, and the end of its
    /// queue pair, for up to half a second. Then its pages are replaced, and the peer goes on in pages that nobody
    /// reads. Where pages cannot be replaced, both fail with a [`Quarantine`](crate::error::Quarantine); the pages of
    /// one memory are replaced 64 times at most, because each time takes a descriptor and mappings for good.
    Mapped,
    /// TCP to every peer, inside this process as well.
    Tcp,
}

/// Options of [`Device::soft`](crate::Device::soft).
#[derive(Debug, Clone)]
pub struct SoftOptions {
    /// The name of the device (`soft0`).
    pub name: String,
    /// The wire to peers ([`Wire::Auto`]).
    pub wire: Wire,
    /// The IPv4 address that peers reach this host by; it becomes part of the GID (127.0.0.1). An interface of this
    /// host must have it: see [`interface_addresses`](crate::interface_addresses).
    pub address: IpAddr,
    /// The TCP port that the device listens on; 0 takes a free one (0). It becomes part of the GID.
    pub tcp_port: u16,
    /// The longest registration in bytes (no bound). Set it to test how a program copes with a device's bound.
    pub max_mr_size: u64,
    /// The faults that the device injects (none).
    pub faults: Option<FaultPlan>,
}

impl Default for SoftOptions {
    fn default() -> Self {
        Self {
            name: "soft0".to_owned(),
            wire: Wire::Auto,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            tcp_port: 0,
            max_mr_size: limits::MAX_MR_SIZE,
            faults: None,
        }
    }
}
