//! Errors of the environment: variables that cannot be read, that are missing, or that contradict each other.

use std::fmt;

use crate::bootstrap::BootstrapError;

/// The variables of this process do not say which rank it is, or cannot be read.
///
/// The text quotes the variables and says what to set. Show it: no program can mend one cause and not another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct EnvError(#[from] pub(super) EnvErrorKind);

/// Why the variables of this process do not say what it is to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnvErrorKind {
    /// A value is not UTF-8.
    #[error("{name} is {value:?}, which is not text: set it to {expected}, or unset it")]
    NotText {
        /// The variable.
        name: String,
        /// What can be read of it.
        value: String,
        /// What it takes.
        expected: &'static str,
    },
    /// A value is not one that the variable takes.
    #[error("{name} is {value:?}: set it to {expected}, or unset it")]
    Invalid {
        /// The variable.
        name: String,
        /// What it says; `(secret)` for a token.
        value: String,
        /// What it takes.
        expected: &'static str,
    },
    /// One variable needs another.
    #[error("{set} is set and {missing} is not: set both, or neither")]
    Missing {
        /// One that is set.
        set: String,
        /// The one that is not.
        missing: &'static str,
    },
    /// A rank beyond the number of ranks.
    #[error("{rank} is not one of {world}: ranks count from 0 to one less than their number")]
    NoSuchRank {
        /// What gives the rank.
        rank: Setting,
        /// What gives their number.
        world: Setting,
    },
    /// Two variables say different things of the same process.
    #[error("{one} and {other} contradict each other: unset the one that is not this job's")]
    Contradiction {
        /// One of them.
        one: Setting,
        /// The other.
        other: Setting,
    },
    /// The ranks are on several hosts, and nothing says where they meet.
    #[error(
        "{launcher} started {world} ranks on more than this host, and nothing says where they meet: set MASTER_ADDR to \
         the host of rank 0 and MASTER_PORT to a free port there, on all ranks"
    )]
    NoAddress {
        /// Who started them.
        launcher: &'static str,
        /// How many they are.
        world: u32,
    },
    /// The launcher names no job by which ranks of one host could meet.
    #[error(
        "{launcher} does not say by which name its ranks could meet: set MASTER_ADDR to the host of rank 0 and \
         MASTER_PORT to a free port there, on all ranks"
    )]
    NoJobName {
        /// Who started them.
        launcher: &'static str,
    },
    /// One process a pod is expected, and the launcher was told otherwise.
    #[error("{setting}, and no torchrun started this process: start it by torchrun, or set 1")]
    ProcessesPerPod {
        /// What says so.
        setting: Setting,
    },
    /// This pod is in none of the lists of hosts.
    #[error(
        "HOSTNAME is {host:?}, which none of {lists} has: let the pods keep the names that Volcano gives them"
    )]
    NotListed {
        /// What this host is called.
        host: String,
        /// The variables that list hosts.
        lists: String,
    },
    /// No launcher has set its variables.
    #[error(
        "no launcher has said which rank this process is: start it by torchrun, mpirun, srun or a Kubernetes job, \
         or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
    )]
    NoLauncher,
}

/// Why this process has not met the others of its job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The variables do not say who it is.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// It knows who it is, and did not meet the others.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// Whoever started it has ended.
    #[error("process {parent}, which started this rank, has ended; start the job again")]
    Orphan {
        /// The parent.
        parent: u32,
    },
}

/// A variable and its value, as they are quoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The variable.
    pub name: String,
    /// What it is set to; `(secret)` for a token.
    pub value: String,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}
