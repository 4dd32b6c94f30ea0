//! Torch's variables: set by torchrun for each process, or by people and plugins without torchrun.

use super::Launcher;
use super::claim::Claim;
use super::meeting::Endpoint;
use super::names::{
    LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, RANK, TORCHELASTIC_RUN_ID, WORLD_SIZE,
};
use super::reader::Reader;
use crate::env::error::EnvErrorKind;

/// The claim of torchrun; `None` if torchrun did not start this process.
pub(super) fn claim(reader: &Reader<'_>) -> Result<Option<Claim>, EnvErrorKind> {
    if !reader.is_set(TORCHELASTIC_RUN_ID) {
        return Ok(None);
    }
    let Some(claim) = rank_and_world(reader, Launcher::Torchrun)? else { return Ok(None) };
    Ok(Some(Claim { job: reader.text(TORCHELASTIC_RUN_ID)?, ..claim }))
}

/// The claim of torch's variables that were set by other means than torchrun.
pub(super) fn variables(reader: &Reader<'_>) -> Result<Option<Claim>, EnvErrorKind> {
    rank_and_world(reader, Launcher::TorchVariables)
}

/// The claim of `RANK` and `WORLD_SIZE`; `None` without `RANK`, because `WORLD_SIZE` alone may belong to an Indexed
/// Job.
pub(super) fn rank_and_world(reader: &Reader<'_>, launcher: Launcher) -> Result<Option<Claim>, EnvErrorKind> {
    let Some(rank) = reader.rank(&[RANK])? else { return Ok(None) };
    let Some(world) = reader.world(&[WORLD_SIZE])? else {
        return Err(EnvErrorKind::Missing { set: RANK.to_owned(), missing: WORLD_SIZE });
    };
    let local_rank = reader.rank(&[LOCAL_RANK])?;
    let local_world = reader.world(&[LOCAL_WORLD_SIZE])?;
    Ok(Some(Claim::new(launcher, rank, world)?.local(local_rank, local_world)?))
}

/// The endpoint of `MASTER_ADDR` and `MASTER_PORT`, if both are set.
pub(super) fn address(reader: &Reader<'_>) -> Result<Option<Endpoint>, EnvErrorKind> {
    match (reader.host(MASTER_ADDR)?, reader.port(MASTER_PORT)?) {
        (Some(host), Some(port)) => Ok(Some(Endpoint { host, port, by: MASTER_ADDR.to_owned() })),
        _ => Ok(None),
    }
}
