//! The variables of a LeaderWorkerSet: a group of pods of Kubernetes, each of which knows the leader's address.

use super::Launcher;
use super::claim::{Claim, Hosts};
use super::meeting::Endpoint;
use super::names::{LWS_GROUP_SIZE, LWS_LEADER_ADDRESS, LWS_WORKER_INDEX, MASTER_PORT};
use super::reader::Reader;
use crate::env::error::EnvErrorKind;

pub(super) fn claim(reader: &Reader<'_>) -> Result<Option<Claim>, EnvErrorKind> {
    let Some(host) = reader.text(LWS_LEADER_ADDRESS)? else { return Ok(None) };
    let set = || LWS_LEADER_ADDRESS.to_owned();
    let rank = reader.rank(&[LWS_WORKER_INDEX])?;
    let rank = rank.ok_or_else(|| EnvErrorKind::Missing { set: set(), missing: LWS_WORKER_INDEX })?;
    let world = reader.world(&[LWS_GROUP_SIZE])?;
    let world = world.ok_or_else(|| EnvErrorKind::Missing { set: set(), missing: LWS_GROUP_SIZE })?;
    let port = reader.port(MASTER_PORT)?.unwrap_or(Endpoint::PORT_DEFAULT);
    let claim = Claim::new(Launcher::LeaderWorkerSet, rank, world)?;
    let (job, address) = (Some(host.clone()), Some(Endpoint { host, port, by: set() }));
    Ok(Some(Claim { hosts: Hosts::Several, job, address, ..claim }))
}
