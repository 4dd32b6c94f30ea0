//! The variables of Open MPI 4 and 5: mpirun sets them for each process, whatever started mpirun itself.

use super::claim::Claim;
use super::reader::Reader;
use super::{Launcher, Namespace};
use crate::env::error::EnvErrorKind;

pub(super) const OMPI_COMM_WORLD_RANK: &str = "OMPI_COMM_WORLD_RANK";
pub(super) const OMPI_COMM_WORLD_SIZE: &str = "OMPI_COMM_WORLD_SIZE";
pub(super) const OMPI_COMM_WORLD_LOCAL_RANK: &str = "OMPI_COMM_WORLD_LOCAL_RANK";
pub(super) const OMPI_COMM_WORLD_LOCAL_SIZE: &str = "OMPI_COMM_WORLD_LOCAL_SIZE";
/// PMIx's name of the job: a number in Open MPI 4, the host and process of mpirun in 5.
pub(super) const PMIX_NAMESPACE: &str = "PMIX_NAMESPACE";
/// The address of the job's daemon on this host. It tells apart jobs that have the same number by chance.
pub(super) const PMIX_SERVER_URI2: &str = "PMIX_SERVER_URI2";

pub(super) fn claim(reader: &Reader<'_>) -> Result<Option<Claim>, EnvErrorKind> {
    let rank = reader.rank(&[OMPI_COMM_WORLD_RANK])?;
    let world = reader.world(&[OMPI_COMM_WORLD_SIZE])?;
    let (rank, world) = match (rank, world) {
        (Some(rank), Some(world)) => (rank, world),
        (None, None) => return Ok(None),
        (Some(rank), None) => {
            return Err(EnvErrorKind::Missing { set: rank.setting.name, missing: OMPI_COMM_WORLD_SIZE });
        }
        (None, Some(world)) => {
            return Err(EnvErrorKind::Missing { set: world.setting.name, missing: OMPI_COMM_WORLD_RANK });
        }
    };
    let local_rank = reader.rank(&[OMPI_COMM_WORLD_LOCAL_RANK])?;
    let local_world = reader.world(&[OMPI_COMM_WORLD_LOCAL_SIZE])?;
    let job = reader.text(PMIX_NAMESPACE)?;
    let server = reader.text(PMIX_SERVER_URI2)?.unwrap_or_default();
    let namespace = job.as_ref().map(|job| Namespace::new("pmix", &[job, &server]));
    let claim = Claim::new(Launcher::OpenMpi, rank, world)?.local(local_rank, local_world)?;
    Ok(Some(Claim { job, namespace, ..claim }))
}
