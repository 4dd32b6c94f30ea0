//! Who starts ranks, by the variables they set.

use std::fmt;

/// Who has started this process as one rank of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Launcher {
    /// [`LocalRanks`](crate::bootstrap::LocalRanks), or a program that does as it does.
    LocalRanks,
    /// torchrun.
    Torchrun,
    /// Somebody who sets torch's variables: a person, a script, Volcano's or Kubeflow's plugin for PyTorch.
    TorchVariables,
    /// Open MPI's mpirun.
    OpenMpi,
    /// A launcher that speaks PMI: MPICH's and Intel MPI's mpirun.
    Pmi,
    /// Slurm's srun.
    Slurm,
    /// A LeaderWorkerSet of Kubernetes, a process a pod.
    LeaderWorkerSet,
    /// Kubeflow Trainer, a process a pod.
    Trainer,
    /// A Volcano job, a process a pod.
    Volcano,
    /// An Indexed Job of Kubernetes, a process a pod.
    IndexedJob,
}

impl Launcher {
    /// All of them, the innermost first: of two that have set their variables the first has started this process, and
    /// the other has started the first.
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

    /// Its name.
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
