//! The variables of Kubeflow Trainer, which are torchrun's arguments.
//!
//! A pod whose process was not started by torchrun has one rank: that process.

use super::Launcher;
use super::claim::{Claim, Hosts};
use super::meeting::Endpoint;
use super::names::{PET_MASTER_ADDR, PET_MASTER_PORT, PET_NNODES, PET_NODE_RANK, PET_NPROC_PER_NODE};
use super::reader::{Reader, invalid};
use crate::env::error::EnvErrorKind;

pub(super) fn claim(reader: &Reader<'_>) -> Result<Option<Claim>, EnvErrorKind> {
    let (rank, world) = match (reader.rank(&[PET_NODE_RANK])?, reader.world(&[PET_NNODES])?) {
        (Some(rank), Some(world)) => (rank, world),
        (Some(rank), None) => {
            return Err(EnvErrorKind::Missing { set: rank.setting.name, missing: PET_NNODES });
        }
        (None, Some(world)) if world.value > 1 => {
            return Err(EnvErrorKind::Missing { set: world.setting.name, missing: PET_NODE_RANK });
        }
        _ => return Ok(None),
    };
    if let Some(processes) = reader.setting(PET_NPROC_PER_NODE)? {
        match processes.value.as_str() {
            // A single process, or a number that torchrun would find out. Without torchrun, the pod has one rank
            // anyway.
            "1" | "auto" | "cpu" | "gpu" | "xpu" => {}
            digits if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
                return Err(EnvErrorKind::ProcessesPerPod { setting: processes });
            }
            _ => return Err(invalid(processes)),
        }
    }
    let address = match (reader.text(PET_MASTER_ADDR)?, reader.port(PET_MASTER_PORT)?) {
        (Some(host), port) => {
            let (port, by) = (port.unwrap_or(Endpoint::PORT_DEFAULT), PET_MASTER_ADDR.to_owned());
            Some(Endpoint { host, port, by })
        }
        (None, _) => None,
    };
    let claim = Claim::new(Launcher::Trainer, rank, world)?;
    Ok(Some(Claim { hosts: Hosts::Several, address, ..claim }))
}
