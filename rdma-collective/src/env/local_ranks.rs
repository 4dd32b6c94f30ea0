//! The variables of [`LocalRanks`](crate::bootstrap::LocalRanks): torch's names, the parent's pid, and the job's token.

use super::claim::{Claim, Hosts};
use super::names::RDMA_PARENT_PID;
use super::reader::Reader;
use super::{Launcher, torchrun};
use crate::env::error::EnvErrorKind;

pub(super) fn claim(reader: &Reader<'_>) -> Result<Option<Claim>, EnvErrorKind> {
    if parent(reader)?.is_none() {
        return Ok(None);
    }
    let claim = torchrun::rank_and_world(reader, Launcher::LocalRanks)?;
    Ok(claim.map(|claim| Claim { hosts: Hosts::One, ..claim }))
}

/// The pid of the parent; `None` if this is none of `LocalRanks`.
pub(super) fn parent(reader: &Reader<'_>) -> Result<Option<u32>, EnvErrorKind> {
    let parent = reader.number(RDMA_PARENT_PID, 1..=i32::MAX as u32)?;
    Ok(parent.map(|parent| parent.value))
}
