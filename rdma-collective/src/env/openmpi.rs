//! The variables of Open MPI 4 and 5: mpirun sets them for each process, whatever started mpirun itself.

use super::claim::Claim;
use super::names::{
    OMPI_COMM_WORLD_LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_SIZE, OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE,
    PMIX_NAMESPACE, PMIX_SERVER_URI2,
};
use super::reader::Reader;
use super::{Launcher, Namespace};
use crate::env::error::EnvErrorKind;

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
