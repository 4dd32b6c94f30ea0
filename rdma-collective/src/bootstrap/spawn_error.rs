//! Errors of starting ranks on this host.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use super::BootstrapError;

/// The ranks of this host did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// There is no store for them.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// A process could not be started.
    #[error(
        "rank {rank} could not be started ({program}): {source}; see the limits on processes (`ulimit -u`)"
    )]
    Start {
        /// The rank.
        rank: u32,
        /// What was to be started.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// A process could not be watched.
    #[error("rank {rank} could not be waited for: {source}; nobody else may wait for it")]
    Watch {
        /// The rank.
        rank: u32,
        /// What the system said.
        source: io::Error,
    },
    /// A rank failed.
    #[error("rank {rank} failed ({status}); see what it printed")]
    Failed {
        /// The first that did.
        rank: u32,
        /// How it ended.
        status: ExitStatus,
        /// The ranks that did not end by themselves then, and were killed.
        killed: Vec<u32>,
    },
    /// Ranks had not ended at the deadline, and were killed.
    #[error("ranks {ranks:?} had not ended after {waited:.1?} and were killed; see where they wait")]
    DeadlineExceeded {
        /// Which.
        ranks: Vec<u32>,
        /// How long was waited.
        waited: Duration,
    },
    /// This process seems to be a rank, and a variable does not fit.
    #[error("the variable {name} is {value:?}; unset RDMA_JOB_TOKEN, or start the ranks by LocalRanks")]
    Variable {
        /// Its name.
        name: &'static str,
        /// What it says.
        value: String,
    },
    /// This process is a rank whose parent is gone.
    #[error("process {parent}, which started this rank, has ended; start the job again")]
    Orphan {
        /// The parent.
        parent: i32,
    },
}
