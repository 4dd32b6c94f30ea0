//! The launchers whose variables are read, and their order.

use std::fmt;

/// The launcher that has started this process as one rank of a job.
///
/// A part of [`Launch`](crate::env::Launch).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Launcher {
    /// [`LocalRanks`](crate::bootstrap::LocalRanks), or a program that sets the same variables.
    LocalRanks,
    /// torchrun.
    Torchrun,
    /// Torch's variables, set by a person, a script, or the PyTorch plugin of Volcano or Kubeflow.
    TorchVariables,
    /// Open MPI's mpirun.
    OpenMpi,
    /// A launcher that speaks PMI: MPICH's and Intel MPI's mpirun.
    Pmi,
    /// Slurm's srun.
    Slurm,
    /// A LeaderWorkerSet of Kubernetes, one rank in each pod.
    LeaderWorkerSet,
    /// Kubeflow Trainer, one rank in each pod.
    Trainer,
    /// A Volcano job, one rank in each pod.
    Volcano,
    /// An Indexed Job of Kubernetes, one rank in each pod.
    IndexedJob,
}

impl Launcher {
    /// All launchers, the innermost first. If the variables of two are set, the earlier one has started this process,
    /// and the later one has started the earlier.
    pub const ALL: [Self; 10] = [
        Self::LocalRanks,
        Self::Torchrun,
        Self::TorchVariables,
        Self::OpenMpi,
        Self::Pmi,
        Self::Slurm,
        Self::LeaderWorkerSet,
        Self::Trainer,
        Self::Volcano,
        Self::IndexedJob,
    ];

    /// The name of the launcher, as errors and reports use it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LocalRanks => "LocalRanks",
            Self::Torchrun => "torchrun",
            Self::TorchVariables => "RANK and WORLD_SIZE",
            Self::OpenMpi => "Open MPI",
            Self::Pmi => "PMI",
            Self::Slurm => "Slurm",
            Self::LeaderWorkerSet => "LeaderWorkerSet",
            Self::Trainer => "Kubeflow Trainer",
            Self::Volcano => "Volcano",
            Self::IndexedJob => "Indexed Job",
        }
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
