//! Errors of connecting a queue pair and of choosing its GID.

use std::fmt;
use std::io;

use crate::{GidEntry, PortNum, PortState, QpNum, QpState};

/// A queue pair could not be moved to its next state.
///
/// Raised by the transitions of a queue pair, such as [`QueuePair::connect`](crate::QueuePair::connect).
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The port carries no data.
    #[error(
        "port {port} of {device} is {state}, not ACTIVE: check cable and switch, or `ip link set NETDEV up`"
    )]
    PortDown {
        /// Name of the device.
        device: String,
        /// Number of the port.
        port: PortNum,
        /// State of the port.
        state: PortState,
    },
    /// The GID table of the port has no entry at the requested index.
    #[error("port {port} of {device} has no GID at index {index}: its table has {}", show_gids(table))]
    NoSuchGid {
        /// Name of the device.
        device: String,
        /// Number of the port.
        port: PortNum,
        /// The requested index.
        index: u32,
        /// The entries that the table has.
        table: Vec<GidEntry>,
    },
    /// The index of the GID does not fit the address of a path.
    #[error(
        "GID index {index} is beyond {}, the largest that a path can name: take an entry before it",
        u8::MAX
    )]
    GidBeyondPath {
        /// The requested index.
        index: u32,
    },
    /// The access has bits that [`Access`](crate::Access) does not declare.
    #[error("the access bits {bits:#x} have no name here: build the access from the constants of Access")]
    UndeclaredAccess {
        /// The bits without a name.
        bits: u32,
    },
    /// The device refused the transition.
    #[error("queue pair {qp_num} was refused {to}: {source}; {mend}")]
    Refused {
        /// Number of the queue pair.
        qp_num: QpNum,
        /// The state that the queue pair should have reached.
        to: QpState,
        /// The kernel's error.
        source: io::Error,
        /// The usual remedy.
        mend: String,
    },
    /// The port or the queue pair did not answer a query.
    #[error(transparent)]
    Query(#[from] super::QueryError),
    /// The queue pair belongs to another worker.
    #[error("queue pair {qp_num} belongs to another worker: hand it to the one that created it")]
    ForeignWorker {
        /// Number of the queue pair.
        qp_num: QpNum,
    },
    /// This process was forked from the one that made the object.
    #[error(transparent)]
    Forked(#[from] super::Forked),
}

fn show_gids(table: &[GidEntry]) -> String {
    if table.is_empty() {
        return "no entry: give the interface an IP address".to_owned();
    }
    let entries: Vec<_> = table.iter().map(|entry| format!("{} ({})", entry.index, entry.gid)).collect();
    entries.join(", ")
}

/// The reason why an entry of a GID table was not chosen.
///
/// [`NoUsableGid`] and [`Chosen`](crate::gid::Chosen) list one for each entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GidRejection {
    /// The entry has another type than the requested one.
    WrongType,
    /// The entry has another address family than the requested one.
    WrongFamily,
    /// The entry's network interface is not in this network namespace.
    NoNetdev,
    /// The entry is link-local, and a routable entry exists.
    LinkLocal,
    /// Another entry ranks higher.
    RankedLower,
}

impl fmt::Display for GidRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WrongType => "wrong type",
            Self::WrongFamily => "wrong address family",
            Self::NoNetdev => "its interface is not in this network namespace",
            Self::LinkLocal => "link-local",
            Self::RankedLower => "a better one is there",
        })
    }
}

/// No entry of a port's GID table can be used.
///
/// Raised by [`gid::choose`](crate::gid::choose).
#[derive(Clone, PartialEq, Eq)]
pub struct NoUsableGid {
    /// Number of the port.
    pub port: PortNum,
    /// Every entry of the table with the reason why it was rejected.
    pub rejected: Vec<(GidEntry, GidRejection)>,
}

impl fmt::Display for NoUsableGid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {} has no usable GID", self.port)?;
        for (entry, why) in &self.rejected {
            write!(f, "; {} {} ({}): {why}", entry.index, entry.gid, entry.kind)?;
        }
        f.write_str(
            ": give the interface a routable IP address in this network namespace, or name a GID index",
        )
    }
}

impl std::error::Error for NoUsableGid {}
