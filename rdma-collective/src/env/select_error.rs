//! Errors of choosing a device.

use rdma_core::error::{NoUsableGid, OpenError, QueryError};
use rdma_core::{GidEntry, PortNum, PortState};

/// No device can be used, or not the one that was asked for.
///
/// The text names the device, the port or the address and says what to mend. Show it: no program can mend one cause and
/// not another.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct SelectError(#[from] pub(super) SelectErrorKind);

#[derive(Debug, thiserror::Error)]
pub(super) enum SelectErrorKind {
    /// The named device is not there, or does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It does not answer.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// Its port is down.
    #[error(
        "port {port} of {device} is {state}, not ACTIVE: check cable and switch, or `ip link set NETDEV up`"
    )]
    PortDown {
        /// The device.
        device: String,
        /// The port.
        port: PortNum,
        /// Its state.
        state: PortState,
    },
    /// `NCCL_IB_HCA` leaves none of its ports.
    #[error("NCCL_IB_HCA={filter} takes none of the {ports} ports of {device}: name one of them")]
    NoPort {
        /// The device.
        device: String,
        /// How many it has.
        ports: u8,
        /// What was asked for.
        filter: String,
    },
    /// None of its addresses can be used.
    #[error("{device}: {source}")]
    NoGid {
        /// The device.
        device: String,
        /// Every address, and why not.
        source: NoUsableGid,
    },
    /// `NCCL_SOCKET_IFNAME` leaves no interface for the software device.
    #[error("NCCL_SOCKET_IFNAME={filter} takes none of this host's interfaces ({there}): name one of them")]
    NoInterface {
        /// What was asked for.
        filter: String,
        /// What there is.
        there: String,
    },
    /// The interfaces of this host are not known.
    #[error(
        "the network interfaces of this host cannot be listed: {0}; see whether netlink sockets are allowed"
    )]
    Interfaces(std::io::Error),
    /// The address asked for is not there.
    #[error("{device} has no GID at index {index}; it has {}", indices(.table))]
    NoSuchGid {
        /// The device.
        device: String,
        /// What was asked for.
        index: u32,
        /// What there is.
        table: Vec<GidEntry>,
    },
}

fn indices(table: &[GidEntry]) -> String {
    let entries: Vec<String> =
        table.iter().map(|entry| format!("{} ({} {})", entry.index, entry.gid, entry.kind)).collect();
    if entries.is_empty() { "none: give its interface an address".to_owned() } else { entries.join(", ") }
}
