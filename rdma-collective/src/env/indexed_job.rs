//! The variables of an Indexed Job of Kubernetes.
//!
//! The job only numbers its pods. The pod spec must give their number (`WORLD_SIZE`) and the meeting place
//! (`MASTER_ADDR`).

use super::Launcher;
use super::claim::{Claim, Hosts};
use super::meeting::Endpoint;
use super::names::{JOB_COMPLETION_INDEX, MASTER_ADDR, MASTER_PORT, WORLD_SIZE};
use super::reader::Reader;
use crate::env::error::EnvErrorKind;

/// The claim; `None` without `WORLD_SIZE` and `MASTER_ADDR`, because the pods of most Indexed Jobs are independent.
pub(super) fn claim(reader: &Reader<'_>) -> Result<Option<Claim>, EnvErrorKind> {
    let (world, host) = (reader.world(&[WORLD_SIZE])?, reader.host(MASTER_ADDR)?);
    if world.is_none() && host.is_none() {
        return Ok(None);
    }
    let Some(rank) = reader.rank(&[JOB_COMPLETION_INDEX])? else { return Ok(None) };
    let missing = |missing| EnvErrorKind::Missing { set: JOB_COMPLETION_INDEX.to_owned(), missing };
    let world = world.ok_or_else(|| missing(WORLD_SIZE))?;
    let host = host.ok_or_else(|| missing(MASTER_ADDR))?;
    let port = reader.port(MASTER_PORT)?.unwrap_or(Endpoint::PORT_DEFAULT);
    let claim = Claim::new(Launcher::IndexedJob, rank, world)?;
    let address = Some(Endpoint { host, port, by: MASTER_ADDR.to_owned() });
    Ok(Some(Claim { hosts: Hosts::Several, address, ..claim }))
}
