//! The variables of PMI and PMIx: those of MPICH's and Intel MPI's mpirun, of Cray's launchers and of `srun
//! --mpi=pmi2`.
//!
//! PMIx itself has no variable for the number of ranks; unless the launcher sets one, its variables are no claim.

use super::claim::{Claim, Hosts};
use super::names::{
    MPI_LOCALNRANKS, MPI_LOCALRANKID, PMI_JOBID, PMI_LOCAL_RANK, PMI_LOCAL_SIZE, PMI_RANK, PMI_SIZE,
    PMIX_NAMESPACE, PMIX_RANK, PMIX_SIZE,
};
use super::reader::Reader;
use super::{Launcher, Namespace, slurm};
use crate::env::error::EnvErrorKind;

pub(super) fn claim(reader: &Reader<'_>) -> Result<Option<Claim>, EnvErrorKind> {
    let world = reader.world(&[PMI_SIZE, PMIX_SIZE])?;
    let rank = reader.rank(&[PMI_RANK])?;
    let (rank, world) = match (rank, world) {
        (Some(rank), Some(world)) => (rank, world),
        (None, None) => return Ok(None),
        (Some(rank), None) => {
            return Err(EnvErrorKind::Missing { set: rank.setting.name, missing: PMI_SIZE });
        }
        (None, Some(world)) => match reader.rank(&[PMIX_RANK])? {
            Some(rank) => (rank, world),
            None => return Err(EnvErrorKind::Missing { set: world.setting.name, missing: PMI_RANK }),
        },
    };
    let local_rank = reader.rank(&[PMI_LOCAL_RANK, MPI_LOCALRANKID])?;
    let local_world = reader.world(&[PMI_LOCAL_SIZE, MPI_LOCALNRANKS])?;
    let (pmix, pmi) = (reader.text(PMIX_NAMESPACE)?, reader.text(PMI_JOBID)?);
    let manager = if pmix.is_some() { "pmix" } else { "pmi" };
    let job = pmix.or(pmi);
    let namespace = job.as_ref().map(|job| Namespace::new(manager, &[job]));
    let claim = Claim::new(Launcher::Pmi, rank, world)?.local(local_rank, local_world)?;
    let claim = Claim { job, namespace, ..claim };
    Ok(Some(with_step(claim, reader)))
}

/// Adds Slurm's name for the job, if Slurm numbers this process likewise (`srun --mpi=pmi2`). Under an mpirun that srun
/// started the numbers differ, and Slurm's step is another job.
fn with_step(mut claim: Claim, reader: &Reader<'_>) -> Claim {
    let Ok(Some(step)) = slurm::claim(reader) else { return claim };
    if (step.rank.value, step.world.value) == (claim.rank.value, claim.world.value) {
        claim.namespace = step.namespace.or(claim.namespace);
        claim.job = claim.job.or(step.job);
        if claim.hosts == Hosts::Unknown {
            claim.hosts = step.hosts;
        }
    }
    claim
}
