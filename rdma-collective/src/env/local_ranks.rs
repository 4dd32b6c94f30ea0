//! Ranks that [`LocalRanks`](crate::bootstrap::LocalRanks) started: torch's names, and the process that serves.

use super::claim::{Claim, Hosts};
use super::reader::Reader;
use super::{Launcher, torchrun};
use crate::env::error::EnvErrorKind;

/// The process that started this one, serves the store and ends its ranks with itself.
pub(super) const RDMA_PARENT_PID: &str = "RDMA_PARENT_PID";
/// The job's token, which only its processes are to know.
pub(super) const RDMA_JOB_TOKEN: &str = "RDMA_JOB_TOKEN";

pub(super) fn claim(reader: &Reader<'_>) -> Result<Option<Claim>, EnvErrorKind> {
    if parent(reader)?.is_none() {
        return Ok(None);
    }
    let claim = torchrun::rank_and_world(reader, Launcher::LocalRanks)?;
    Ok(claim.map(|claim| Claim { hosts: Hosts::One, ..claim }))
}

/// The process that started this one.
pub(super) fn parent(reader: &Reader<'_>) -> Result<Option<u32>, EnvErrorKind> {
    let parent = reader.number(RDMA_PARENT_PID, 1..=i32::MAX as u32)?;
    Ok(parent.map(|parent| parent.value))
}
