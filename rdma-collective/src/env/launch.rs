//! Which rank this process is: one launcher's word, held against that of others who speak of the same process.

use super::claim::{Claim, Hosts, agree};
use super::local_ranks::{self, RDMA_JOB_TOKEN};
use super::meeting::Endpoint;
use super::nccl::NCCL_COMM_ID;
use super::pmi::{PMIX_RANK, PMIX_SIZE};
use super::reader::Reader;
use super::torchrun::{self, MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE};
use super::{Launcher, Meeting, indexed_job, lws, openmpi, pmi, slurm, trainer, volcano};
use crate::bootstrap::JobToken;
use crate::env::Setting;
use crate::env::error::EnvErrorKind;

/// Which rank of which job this process is, and where the ranks meet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Launch {
    /// Who started it.
    pub launcher: Launcher,
    /// This process's rank.
    pub rank: u32,
    /// How many ranks the job has.
    pub world: u32,
    /// Its number among the ranks of this host, when the launcher tells.
    pub local_rank: Option<u32>,
    /// How many ranks this host has, when the launcher tells.
    pub local_world: Option<u32>,
    /// Where the ranks meet.
    pub meeting: Meeting,
    /// How the launcher calls the job.
    pub job: Option<String>,
    /// The job's secret, when `RDMA_JOB_TOKEN` gives one.
    pub token: Option<JobToken>,
    /// The process that serves the store and with which the rank ends, when it is one of
    /// [`LocalRanks`](crate::bootstrap::LocalRanks).
    pub parent: Option<u32>,
    /// The variables that gave rank and number of ranks.
    pub by: [Setting; 2],
    /// Variables that name another host to meet at, and do not count.
    pub(super) overruled: Vec<Setting>,
}

/// The claim of each launcher.
fn claim(launcher: Launcher, reader: &Reader<'_>) -> Result<Option<Claim>, EnvErrorKind> {
    match launcher {
        Launcher::LocalRanks => local_ranks::claim(reader),
        Launcher::Torchrun => torchrun::claim(reader),
        Launcher::TorchVariables => torchrun::variables(reader),
        Launcher::OpenMpi => openmpi::claim(reader),
        Launcher::Pmi => pmi::claim(reader),
        Launcher::Slurm => slurm::claim(reader),
        Launcher::LeaderWorkerSet => lws::claim(reader),
        Launcher::Trainer => trainer::claim(reader),
        Launcher::Volcano => volcano::claim(reader),
        Launcher::IndexedJob => indexed_job::claim(reader),
    }
}

/// The launch that the variables tell of; `None` when they tell of none.
pub(super) fn find(reader: &Reader<'_>) -> Result<Option<Launch>, EnvErrorKind> {
    let token = token(reader)?;
    let mut rest = Launcher::ALL.into_iter();
    let winner = loop {
        let Some(launcher) = rest.next() else { return nobody(reader) };
        if let Some(claim) = claim(launcher, reader)? {
            break claim;
        }
    };
    let mut fallback = None;
    for other in rest.filter(|other| speaks_of_the_same(winner.launcher, *other)) {
        let other = match claim(other, reader) {
            // torchrun would have started several in this pod; somebody else has.
            Err(EnvErrorKind::ProcessesPerPod { .. }) => None,
            other => other?,
        };
        if let Some(other) = other {
            winner.agrees_with(&other)?;
            fallback.get_or_insert(other);
        }
    }
    if has_world_beside(winner.launcher)
        && let Some(world) = reader.world(&[WORLD_SIZE])?
    {
        agree(&world, &winner.world)?;
    }
    let fallbacks = fallback.as_ref().and_then(|other| other.address.clone());
    let addresses = [torchrun::address(reader)?, winner.address.clone(), fallbacks];
    let meeting = meeting(reader, &winner, fallback)?;
    let overruled = overruled(&meeting, &addresses);
    let parent = match winner.launcher {
        Launcher::LocalRanks => local_ranks::parent(reader)?,
        _ => None,
    };
    let Claim { launcher, rank, world, local_rank, local_world, job, .. } = winner;
    Ok(Some(Launch {
        launcher,
        rank: rank.value,
        world: world.value,
        local_rank,
        local_world,
        meeting,
        job,
        token,
        parent,
        by: [rank.setting, world.setting],
        overruled,
    }))
}

/// Of the addresses that somebody gives, those of other hosts than that where the ranks meet.
fn overruled(meeting: &Meeting, addresses: &[Option<Endpoint>]) -> Vec<Setting> {
    let (Meeting::Served(at) | Meeting::Address(at) | Meeting::BesideTorch(at)) = meeting else {
        return Vec::new();
    };
    let others = addresses.iter().flatten();
    others.filter(|other| other.host != at.host).map(Endpoint::setting).collect()
}

/// Whether `other`, whose variables are set too, must say the same.
///
/// torchrun, mpirun and srun start each other, and all of them run in pods: what is around the one that started this
/// process speaks of the one. Variables that somebody set by hand, in a pod spec or a script, have no such order.
fn speaks_of_the_same(winner: Launcher, other: Launcher) -> bool {
    match winner {
        Launcher::TorchVariables => other != Launcher::Volcano, // its plugin set them, with an order of its own
        Launcher::Trainer => other == Launcher::IndexedJob,     // its pods are an Indexed Job's
        _ => false,
    }
}

/// Whether `WORLD_SIZE` without `RANK` must be the number of ranks.
fn has_world_beside(winner: Launcher) -> bool {
    matches!(
        winner,
        Launcher::OpenMpi | Launcher::Pmi | Launcher::Slurm | Launcher::LeaderWorkerSet | Launcher::Volcano
    )
}

/// No launcher: then half a place is an error, since alone is not what was meant.
fn nobody(reader: &Reader<'_>) -> Result<Option<Launch>, EnvErrorKind> {
    // MASTER_ADDR alone is left in many a shell.
    for (set, missing) in [(WORLD_SIZE, RANK), (PMIX_RANK, PMIX_SIZE)] {
        if let Some(set) = reader.setting(set)? {
            return Err(EnvErrorKind::Missing { set: set.name, missing });
        }
    }
    Ok(None)
}

fn token(reader: &Reader<'_>) -> Result<Option<JobToken>, EnvErrorKind> {
    let secret = |_| EnvErrorKind::Invalid {
        name: RDMA_JOB_TOKEN.to_owned(),
        value: "(secret)".to_owned(),
        expected: "32 hexadecimal digits",
    };
    let text = reader.text(RDMA_JOB_TOKEN).map_err(secret)?;
    text.map(|text| text.parse().map_err(|_| secret(EnvErrorKind::NoLauncher))).transpose()
}

/// What is explicit first: an address for this job, an address for all jobs, the launcher's own, its job's name.
fn meeting(reader: &Reader<'_>, winner: &Claim, other: Option<Claim>) -> Result<Meeting, EnvErrorKind> {
    let master = torchrun::address(reader)?;
    if winner.launcher == Launcher::LocalRanks {
        return master.map(Meeting::Served).ok_or_else(|| half(reader, winner));
    }
    if let Some(setting) = reader.setting(NCCL_COMM_ID)? {
        return Endpoint::parse(setting).map(Meeting::Address);
    }
    let (address, namespace, hosts) = match other {
        Some(other) => (other.address, other.namespace, other.hosts),
        None => (None, None, Hosts::Unknown),
    };
    let hosts = if winner.hosts == Hosts::Unknown { hosts } else { winner.hosts };
    if let Some(address) = master {
        let beside = winner.launcher == Launcher::Torchrun;
        return Ok(if beside { Meeting::BesideTorch(address) } else { Meeting::Address(address) });
    }
    if let Some(address) = winner.address.clone().or(address) {
        return Ok(Meeting::Address(address));
    }
    match winner.namespace.clone().or(namespace) {
        Some(namespace) if hosts != Hosts::Several => Ok(Meeting::Namespace(namespace)),
        _ if is_half(reader) || matches!(winner.launcher, Launcher::Torchrun | Launcher::TorchVariables) => {
            Err(half(reader, winner))
        }
        None if hosts != Hosts::Several => Err(EnvErrorKind::NoJobName { launcher: winner.launcher.name() }),
        _ => Err(EnvErrorKind::NoAddress { launcher: winner.launcher.name(), world: winner.world.value }),
    }
}

fn is_half(reader: &Reader<'_>) -> bool {
    reader.is_set(MASTER_ADDR) != reader.is_set(MASTER_PORT)
}

/// One of `MASTER_ADDR` and `MASTER_PORT` is not set, or neither.
fn half(reader: &Reader<'_>, winner: &Claim) -> EnvErrorKind {
    let (set, missing) = match (reader.is_set(MASTER_ADDR), reader.is_set(MASTER_PORT)) {
        (true, _) => (MASTER_ADDR, MASTER_PORT),
        (_, true) => (MASTER_PORT, MASTER_ADDR),
        _ => (winner.rank.setting.name.as_str(), MASTER_ADDR),
    };
    EnvErrorKind::Missing { set: set.to_owned(), missing }
}
