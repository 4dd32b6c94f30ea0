//! Errors of the environment: variables that cannot be read, that are missing, or that contradict each other.

use std::fmt;

use crate::bootstrap::BootstrapError;
use crate::quoted::Quoted;

/// The variables of this process do not say which rank it is, or cannot be read.
///
/// The text quotes the variables and says what to set. Show it: no program can mend one cause and not another.
///
/// Raised by [`Environment::read`](crate::env::Environment::read) and
/// [`NcclOptions::read`](crate::env::NcclOptions::read).
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct EnvError(#[from] pub(super) EnvErrorKind);

/// The reason why the variables of this process do not describe a launch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnvErrorKind {
    /// The value of a variable is not UTF-8.
    #[error("{name} is {:?}, which is not text: set it to {expected}, or unset it", Quoted(value))]
    NotText {
        /// The variable.
        name: String,
        /// The value, with a replacement character for each byte that cannot be read.
        value: String,
        /// The values that the variable takes.
        expected: &'static str,
    },
    /// The value of a variable is none that it takes.
    #[error("{name} is {:?}: set it to {expected}, or unset it", Quoted(value))]
    Invalid {
        /// The variable.
        name: String,
        /// The value; `(secret)` for a token.
        value: String,
        /// The values that the variable takes.
        expected: &'static str,
    },
    /// A variable is set, and another that it needs is not.
    #[error("{set} is set and {missing} is not: set both, or neither")]
    Missing {
        /// The variable that is set.
        set: String,
        /// The variable that is missing.
        missing: &'static str,
    },
    /// The rank is not below the number of ranks.
    #[error("{rank} is not one of {world}: ranks count from 0 to one less than their number")]
    NoSuchRank {
        /// The variable that gives the rank.
        rank: Setting,
        /// The variable that gives the number of ranks.
        world: Setting,
    },
    /// Two variables make different statements about the same process.
    #[error("{one} and {other} contradict each other: unset the one that is not this job's")]
    Contradiction {
        /// The first variable.
        one: Setting,
        /// The second variable.
        other: Setting,
    },
    /// The ranks are on several hosts, and no variable gives a place where they can meet.
    #[error(
        "{launcher} started {world} ranks on more than this host, and nothing says where they meet: set MASTER_ADDR to \
         the host of rank 0 and MASTER_PORT to a free port there, on all ranks"
    )]
    NoAddress {
        /// The launcher that started the ranks.
        launcher: &'static str,
        /// The number of ranks.
        world: u32,
    },
    /// The launcher names no job by which ranks of one host could meet.
    #[error(
        "{launcher} does not say by which name its ranks could meet: set MASTER_ADDR to the host of rank 0 and \
         MASTER_PORT to a free port there, on all ranks"
    )]
    NoJobName {
        /// The launcher that started the ranks.
        launcher: &'static str,
    },
    /// The launcher was asked for several processes in a pod, which only torchrun would start.
    #[error("{setting}, and no torchrun started this process: start it by torchrun, or set 1")]
    ProcessesPerPod {
        /// The variable that asks for them.
        setting: Setting,
    },
    /// This pod is in none of the lists of hosts.
    #[error(
        "HOSTNAME is {:?}, which none of {lists} has: let the pods keep the names that Volcano gives them",
        Quoted(host)
    )]
    NotListed {
        /// The name of this host.
        host: String,
        /// The variables that list hosts.
        lists: String,
    },
    /// No launcher's variables are set.
    #[error(
        "no launcher has said which rank this process is: start it by torchrun, mpirun, srun or a Kubernetes job, \
         or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
    )]
    NoLauncher,
}

/// The reason why this process has not met the other ranks of its job.
///
/// Raised by [`join`](crate::env::join).
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The variables do not describe a launch.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// The rank is known, but the meeting failed.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The process that started this rank has ended.
    #[error("process {parent}, which started this rank, has ended; start the job again")]
    Orphan {
        /// The pid of that process.
        parent: u32,
    },
}

/// A variable and its value, as errors and reports quote them.
///
/// A part of [`Launch`](crate::env::Launch).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The variable.
    pub name: String,
    /// The value; `(secret)` for a token.
    pub value: String,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, Quoted(&self.value))
    }
}
