//! Errors of starting ranks on this host, and of waiting for them.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use super::BootstrapError;

/// The reason why the ranks of this host did not start, or did not end well.
///
/// Raised by [`LocalRanks`](crate::bootstrap::LocalRanks).
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The store of the ranks could not be served.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// A process could not be started.
    #[error(
        "rank {rank} could not be started ({program}): {source}; see the limits on processes (`ulimit -u`)"
    )]
    Start {
        /// The rank.
        rank: u32,
        /// The program that was to be started.
        program: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The end of a process could not be waited for.
    #[error("rank {rank} could not be waited for: {source}; nobody else may wait for it")]
    Watch {
        /// The rank.
        rank: u32,
        /// The system's reason.
        source: io::Error,
    },
    /// A rank failed.
    #[error("rank {rank} failed ({status}); see what it printed")]
    Failed {
        /// The first rank that failed.
        rank: u32,
        /// The exit status of that rank.
        status: ExitStatus,
        /// The other ranks that did not end by themselves within 15 s, and were killed.
        killed: Vec<u32>,
    },
    /// Ranks had not ended at the deadline, and were killed.
    #[error("ranks {ranks:?} had not ended after {waited:.1?} and were killed; see where they wait")]
    DeadlineExceeded {
        /// The ranks that were killed.
        ranks: Vec<u32>,
        /// Time that this process waited.
        waited: Duration,
    },
    /// The token says that this process is one of [`LocalRanks`](super::LocalRanks), but another variable is missing or
    /// wrong.
    #[error(
        "the variable {name} is {:?}; unset RDMA_JOB_TOKEN, or start the ranks by LocalRanks",
        crate::quoted::Quoted(value)
    )]
    Variable {
        /// The variable.
        name: &'static str,
        /// The value of the variable; `(secret)` for the token.
        value: String,
    },
    /// This process is a rank whose parent is gone.
    #[error("process {parent}, which started this rank, has ended; start the job again")]
    Orphan {
        /// The pid of the parent.
        parent: i32,
    },
}
