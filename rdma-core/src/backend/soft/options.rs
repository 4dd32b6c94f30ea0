//! How a software device is made.

use std::net::{IpAddr, Ipv4Addr};

use super::fault::{FaultPlan, Planted};
use super::port;

/// Which way the software device reaches a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Wire {
    /// Direct copies inside this process, [memory that is shared](Self::Mapped) with processes of the same host and user, TCP
    /// to every other, and wherever memory cannot be shared: why is said in the log.
    ///
    /// With [faults](SoftOptions::faults), which are injected into messages, no memory is shared.
    #[default]
    Auto,
    /// Direct copies; peers of other processes are unreachable.
    Local,
    /// Memory shared with processes of the same host and user, inside this process as well; a peer that cannot be reached so
    /// is an error that says why, and the peer's device must have this wire, too, or [`Auto`](Self::Auto).
    ///
    /// Memory that the library did not allocate cannot be shared, unless it is [in place](crate::Memory::share_in_place): a
    /// connection that comes upon it goes on over TCP, and says so in the log. A peer that is stopped in the midst of an
    /// access holds up the deregistration of what it accesses, and the end of its queue pair, for half a second: then its
    /// pages are replaced, and it goes on where nobody looks. Where that cannot be, both fail with a
    /// [`Quarantine`](crate::error::Quarantine).
    Mapped,
    /// TCP, inside this process as well.
    Tcp,
}

/// Options of [`Device::soft`](crate::Device::soft).
#[derive(Debug, Clone)]
pub struct SoftOptions {
    /// The device's name (`soft0`).
    pub name: String,
    /// How peers are reached ([`Wire::Auto`]).
    pub wire: Wire,
    /// The address that peers reach this host by, in its GID (127.0.0.1). It must be one of this host's.
    pub address: IpAddr,
    /// The TCP port it listens on; 0 (the default) takes a free one. It is part of the GID.
    pub tcp_port: u16,
    /// Bytes of one registration at most (no bound): less, to see what a program makes of a device's bound.
    pub max_mr_size: u64,
    /// What shall go wrong (nothing).
    pub faults: Option<FaultPlan>,
    /// For tests of tests.
    #[doc(hidden)]
    pub planted: Option<Planted>,
}

impl Default for SoftOptions {
    fn default() -> Self {
        Self {
            name: "soft0".to_owned(),
            wire: Wire::Auto,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            tcp_port: 0,
            max_mr_size: port::MAX_MR_SIZE,
            faults: None,
            planted: None,
        }
    }
}
