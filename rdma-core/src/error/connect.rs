//! Moving a queue pair towards RTS.

use std::fmt;
use std::io;

use crate::{GidEntry, PortNum, PortState, QpNum, QpState};

/// A queue pair could not be moved to its next state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The port carries no data.
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
    /// The GID table has no such entry.
    #[error("port {port} of {device} has no GID at index {index}: its table has {}", show_gids(table))]
    NoSuchGid {
        /// The device.
        device: String,
        /// The port.
        port: PortNum,
        /// The index asked for.
        index: u32,
        /// What there is.
        table: Vec<GidEntry>,
    },
    /// The device refused the transition.
    #[error("queue pair {qp_num} was refused {to}: {source}; {mend}")]
    Refused {
        /// The queue pair.
        qp_num: QpNum,
        /// The state it was to reach.
        to: QpState,
        /// What the kernel said.
        source: io::Error,
        /// What usually mends it.
        mend: String,
    },
    /// The port or the queue pair could not be asked.
    #[error(transparent)]
    Query(#[from] super::QueryError),
    /// The queue pair belongs to another worker.
    #[error("queue pair {qp_num} belongs to another worker: hand it to the one that created it")]
    ForeignWorker {
        /// The queue pair.
        qp_num: QpNum,
    },
}

fn show_gids(table: &[GidEntry]) -> String {
    if table.is_empty() {
        return "no entry: give the interface an IP address".to_owned();
    }
    let entries: Vec<_> = table.iter().map(|entry| format!("{} ({})", entry.index, entry.gid)).collect();
    entries.join(", ")
}

/// Why one entry of a GID table was not chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GidRejection {
    /// It is of another type than asked for.
    WrongType,
    /// It is of the other address family than asked for.
    WrongFamily,
    /// Its network interface is not in this network namespace.
    NoNetdev,
    /// It is link-local, and a routable one is there.
    LinkLocal,
    /// Another one ranks before it.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoUsableGid {
    /// The port.
    pub port: PortNum,
    /// Every entry and why it was rejected.
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
