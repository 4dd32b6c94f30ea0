//! What one launcher's variables say of this process.

use super::meeting::Endpoint;
use super::reader::Number;
use super::{Launcher, Namespace};
use crate::env::error::EnvErrorKind;

/// A rank as one launcher has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) launcher: Launcher,
    pub(super) rank: Number,
    pub(super) world: Number,
    pub(super) local_rank: Option<u32>,
    pub(super) local_world: Option<u32>,
    pub(super) hosts: Hosts,
    /// How the launcher calls the job.
    pub(super) job: Option<String>,
    /// By which its ranks on one host can meet.
    pub(super) namespace: Option<Namespace>,
    /// Where this launcher says that rank 0 is.
    pub(super) address: Option<Endpoint>,
}

/// Over how many hosts the ranks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hosts {
    One,
    Several,
    Unknown,
}

impl Claim {
    /// One with the numbers that every launcher gives.
    pub(super) fn new(launcher: Launcher, rank: Number, world: Number) -> Result<Self, EnvErrorKind> {
        if rank.value >= world.value {
            return Err(EnvErrorKind::NoSuchRank { rank: rank.setting, world: world.setting });
        }
        Ok(Self {
            launcher,
            rank,
            world,
            local_rank: None,
            local_world: None,
            hosts: Hosts::Unknown,
            job: None,
            namespace: None,
            address: None,
        })
    }

    /// With ranks on this host, which tell whether it is the only one.
    pub(super) fn local(mut self, rank: Option<Number>, world: Option<Number>) -> Result<Self, EnvErrorKind> {
        if let Some(local) = world.as_ref().filter(|local| local.value > self.world.value) {
            let (one, other) = (local.setting.clone(), self.world.setting.clone());
            return Err(EnvErrorKind::Contradiction { one, other });
        }
        if let (Some(rank), Some(world)) = (&rank, &world)
            && rank.value >= world.value
        {
            return Err(EnvErrorKind::NoSuchRank {
                rank: rank.setting.clone(),
                world: world.setting.clone(),
            });
        }
        self.local_rank = rank.map(|rank| rank.value);
        self.local_world = world.map(|world| world.value);
        self.hosts = match self.local_world {
            Some(local) if local == self.world.value => Hosts::One,
            Some(_) => Hosts::Several,
            None => Hosts::Unknown,
        };
        Ok(self)
    }

    /// That `other`, set by somebody else for the same process, says the same.
    ///
    /// It may differ where `other` started one process for several of these: then each of its ranks has `local_world`,
    /// one after the other. An Indexed Job has no number of pods of its own, and counts them.
    pub(super) fn agrees_with(&self, other: &Self) -> Result<(), EnvErrorKind> {
        let local = self.local_world.unwrap_or(1);
        let of_several = other.launcher == Launcher::IndexedJob
            || other.world.value.checked_mul(local) == Some(self.world.value);
        if local > 1 && of_several && self.rank.value / local == other.rank.value {
            return Ok(());
        }
        for (one, other) in [(&self.world, &other.world), (&self.rank, &other.rank)] {
            agree(one, other)?;
        }
        Ok(())
    }
}

/// That both are the same number.
pub(super) fn agree(one: &Number, other: &Number) -> Result<(), EnvErrorKind> {
    if one.value == other.value {
        return Ok(());
    }
    Err(EnvErrorKind::Contradiction { one: one.setting.clone(), other: other.setting.clone() })
}
