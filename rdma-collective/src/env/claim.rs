//! The claim of one launcher about this process: its rank, the number of ranks, and where they meet.

use super::meeting::Endpoint;
use super::reader::Number;
use super::{Launcher, Namespace};
use crate::env::error::EnvErrorKind;

/// The rank of this process, and the facts around it, by the variables of one launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) launcher: Launcher,
    pub(super) rank: Number,
    pub(super) world: Number,
    pub(super) local_rank: Option<u32>,
    pub(super) local_world: Option<u32>,
    pub(super) hosts: Hosts,
    /// The launcher's name for the job.
    pub(super) job: Option<String>,
    /// The name by which the job's ranks on one host can meet.
    pub(super) namespace: Option<Namespace>,
    /// The address of rank 0, if this launcher gives one.
    pub(super) address: Option<Endpoint>,
}

/// The number of hosts of the job, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hosts {
    One,
    Several,
    Unknown,
}

impl Claim {
    /// A claim with the numbers that every launcher gives.
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

    /// Adds the numbers of this host's ranks, which tell whether this host is the only one.
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

    /// Checks that `other`, a claim of another launcher for the same process, agrees.
    ///
    /// The numbers may differ in one case: `other` started one process (a pod) for each host, and this launcher started
    /// `local_world` ranks in each. Then `other`'s rank is this one's divided by `local_world`. An Indexed Job numbers
    /// pods but does not say how many there are, so only the rank is compared.
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

/// Checks that both are the same number.
pub(super) fn agree(one: &Number, other: &Number) -> Result<(), EnvErrorKind> {
    if one.value == other.value {
        return Ok(());
    }
    Err(EnvErrorKind::Contradiction { one: one.setting.clone(), other: other.setting.clone() })
}
