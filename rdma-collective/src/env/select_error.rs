//! Errors of choosing a device.

use super::RefusedDevice;
use crate::quoted::Quoted;
use rdma_core::error::{NoUsableGid, OpenError, QueryError};
use rdma_core::{GidEntry, PortNum, PortState};

/// No device can be used, or not the one that was asked for.
///
/// The text names the device, the port or the address and says what to mend. Show it: no program can mend one cause and
/// not another.
///
/// Raised by [`NcclOptions::select`](crate::env::NcclOptions::select).
#[derive(thiserror::Error)]
#[error(transparent)]
pub struct SelectError(#[from] pub(super) SelectErrorKind);

/// The reason why a device cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SelectErrorKind {
    /// The named device is not there, or does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The device does not answer a query.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// `rdma` was asked for, and no RDMA device can be used.
    #[error("no RDMA device can be used, and `rdma` takes no other: {}", reasons(refused))]
    NoneUsable {
        /// Each device, with the reason against it.
        refused: Vec<RefusedDevice>,
    },
    /// The port of the device is not active.
    #[error(
        "port {port} of {device} is {state}, not ACTIVE: check cable and switch, or `ip link set NETDEV up`"
    )]
    PortDown {
        /// The device.
        device: String,
        /// The port.
        port: PortNum,
        /// The state of the port.
        state: PortState,
    },
    /// `NCCL_IB_HCA` takes none of the device's ports.
    #[error("NCCL_IB_HCA={} takes none of the {ports} ports of {device}: name one of them", Quoted(filter))]
    NoPort {
        /// The device.
        device: String,
        /// The number of ports that the device has.
        ports: u8,
        /// The value of `NCCL_IB_HCA`.
        filter: String,
    },
    /// None of the port's GIDs can be used.
    #[error("{device}: {source}")]
    NoGid {
        /// The device.
        device: String,
        /// Each GID, with the reason against it.
        source: NoUsableGid,
    },
    /// `NCCL_SOCKET_IFNAME` takes no interface of this host, so the software device has no address.
    #[error(
        "NCCL_SOCKET_IFNAME={} takes none of this host's interfaces ({there}): name one of them",
        Quoted(filter)
    )]
    NoInterface {
        /// The value of `NCCL_SOCKET_IFNAME`.
        filter: String,
        /// The interfaces of this host.
        there: String,
    },
    /// The interfaces of this host cannot be listed.
    #[error(
        "the network interfaces of this host cannot be listed: {0}; see whether netlink sockets are allowed"
    )]
    Interfaces(std::io::Error),
    /// The device has no GID at the index that was asked for.
    #[error("{device} has no GID at index {index}; it has {}", indices(.table))]
    NoSuchGid {
        /// The device.
        device: String,
        /// The index that was asked for.
        index: u32,
        /// The GIDs that the device has.
        table: Vec<GidEntry>,
    },
}

fn reasons(refused: &[RefusedDevice]) -> String {
    let each: Vec<String> = refused.iter().map(|one| format!("{}: {}", one.device, one.reason)).collect();
    if each.is_empty() { "there is none".to_owned() } else { each.join("; ") }
}

fn indices(table: &[GidEntry]) -> String {
    let entries: Vec<String> =
        table.iter().map(|entry| format!("{} ({} {})", entry.index, entry.gid, entry.kind)).collect();
    if entries.is_empty() { "none: give its interface an address".to_owned() } else { entries.join(", ") }
}
