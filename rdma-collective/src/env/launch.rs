//! The launch of this process: the claim of the innermost launcher, checked against other claims for the same process.
//!
//! Launchers start each other (srun starts mpirun, a pod runs torchrun), so several numberings may be set at once. The
//! innermost launcher started this process, so its numbering wins ([`Launcher::ALL`] is the order).

use super::claim::{Claim, Hosts, agree};
use super::local_ranks;
use super::meeting::Endpoint;
use super::names::{
    MASTER_ADDR, MASTER_PORT, NCCL_COMM_ID, PMIX_RANK, PMIX_SIZE, RANK, RDMA_JOB_TOKEN, WORLD_SIZE,
};
use super::reader::Reader;
use super::torchrun;
use super::{Launcher, Meeting, indexed_job, lws, openmpi, pmi, slurm, trainer, volcano};
use crate::bootstrap::JobToken;
use crate::env::Setting;
use crate::env::error::EnvErrorKind;

/// The rank of this process, its job, and the place where the ranks meet.
///
/// A part of [`Environment`](crate::env::Environment).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Launch {
    /// The launcher that started this process.
    pub launcher: Launcher,
    /// The rank of this process.
    pub rank: u32,
    /// The number of ranks of the job.
    pub world: u32,
    /// The number of this rank among those of this host, if the launcher gives it.
    pub local_rank: Option<u32>,
    /// The number of ranks on this host, if the launcher gives it.
    pub local_world: Option<u32>,
    /// The place where the ranks meet.
    pub meeting: Meeting,
    /// The launcher's name for the job, or that of an outer launcher that numbers this process likewise. A rank with
    /// another name than rank 0's does not join.
    pub job: Option<String>,
    /// The job's secret, if `RDMA_JOB_TOKEN` gives one.
    pub token: Option<JobToken>,
    /// The pid of the parent, if this is one of [`LocalRanks`](crate::bootstrap::LocalRanks). The parent serves the
    /// store, and the rank ends with it.
    pub parent: Option<u32>,
    /// The variables that gave the rank and the number of ranks.
    pub by: [Setting; 2],
    /// Variables that name another host to meet at, and were overruled.
    pub(super) overruled: Vec<Setting>,
}

/// The claim of one launcher; `None` if its variables are not set.
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

/// Finds the launch that the variables describe; `None` if no launcher's variables are set.
pub(super) fn find(reader: &Reader<'_>) -> Result<Option<Launch>, EnvErrorKind> {
    let token = token(reader)?;
    let mut rest = Launcher::ALL.into_iter();
    let winner = loop {
        let Some(launcher) = rest.next() else { return nobody(reader) };
        if let Some(claim) = claim(launcher, reader)? {
            break claim;
        }
    };
    let (mut fallback, mut job) = (None, winner.job.clone());
    for other in rest.filter(|other| speaks_of_the_same(winner.launcher, *other)) {
        let other = match claim(other, reader) {
            // The pod was meant for several ranks of torchrun; another launcher has started them instead.
            Err(EnvErrorKind::ProcessesPerPod { .. }) => None,
            other => other?,
        };
        if let Some(other) = other {
            winner.agrees_with(&other)?;
            job = job.or_else(|| other.job.clone());
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
    let Claim { launcher, rank, world, local_rank, local_world, .. } = winner;
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

/// The addresses that name another host than the one where the ranks meet.
fn overruled(meeting: &Meeting, addresses: &[Option<Endpoint>]) -> Vec<Setting> {
    let (Meeting::Served(at) | Meeting::Address(at) | Meeting::BesideTorch(at)) = meeting else {
        return Vec::new();
    };
    let others = addresses.iter().flatten();
    others.filter(|other| other.host != at.host).map(Endpoint::setting).collect()
}

/// Whether the claim of `other` must agree with that of `winner`.
///
/// torchrun, mpirun and srun start each other, and all of them run in pods. So variables of an outer launcher describe
/// the inner launcher, not this process, and may differ. Variables that were set by hand, in a pod spec or a script,
/// describe this process, and must agree.
fn speaks_of_the_same(winner: Launcher, other: Launcher) -> bool {
    match winner {
        Launcher::TorchVariables => other != Launcher::Volcano, // Volcano's plugin set them, with an order of its own
        Launcher::Trainer => other == Launcher::IndexedJob,     // the Trainer's pods are an Indexed Job's
        _ => false,
    }
}

/// Whether `WORLD_SIZE`, if it is set without `RANK`, must be the number of ranks.
fn has_world_beside(winner: Launcher) -> bool {
    matches!(
        winner,
        Launcher::OpenMpi | Launcher::Pmi | Launcher::Slurm | Launcher::LeaderWorkerSet | Launcher::Volcano
    )
}

/// The outcome without a launcher: no launch, or an error if half a launch is set. A job of one rank is then not what
/// was meant, and would give wrong results silently.
fn nobody(reader: &Reader<'_>) -> Result<Option<Launch>, EnvErrorKind> {
    // Without MASTER_ADDR: it is often left set in a shell.
    for (set, missing) in [(WORLD_SIZE, RANK), (PMIX_RANK, PMIX_SIZE)] {
        if let Some(set) = reader.setting(set)? {
            return Err(EnvErrorKind::Missing { set: set.name, missing });
        }
    }
    Ok(None)
}

/// The job's token. Errors must not quote the secret.
fn token(reader: &Reader<'_>) -> Result<Option<JobToken>, EnvErrorKind> {
    let secret = |_| EnvErrorKind::Invalid {
        name: RDMA_JOB_TOKEN.to_owned(),
        value: "(secret)".to_owned(),
        expected: "32 hexadecimal digits",
    };
    let text = reader.text(RDMA_JOB_TOKEN).map_err(secret)?;
    text.map(|text| text.parse().map_err(|_| secret(EnvErrorKind::NoLauncher))).transpose()
}

/// The place where the ranks meet. The most explicit variable wins: an address set for this job (`NCCL_COMM_ID`), then
/// `MASTER_ADDR` and `MASTER_PORT`, then the launcher's own address, then the job's name on one host.
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

/// Whether exactly one of `MASTER_ADDR` and `MASTER_PORT` is set.
fn is_half(reader: &Reader<'_>) -> bool {
    reader.is_set(MASTER_ADDR) != reader.is_set(MASTER_PORT)
}

/// The error for `MASTER_ADDR` and `MASTER_PORT` if one of them, or both, are missing.
fn half(reader: &Reader<'_>, winner: &Claim) -> EnvErrorKind {
    let (set, missing) = match (reader.is_set(MASTER_ADDR), reader.is_set(MASTER_PORT)) {
        (true, _) => (MASTER_ADDR, MASTER_PORT),
        (_, true) => (MASTER_PORT, MASTER_ADDR),
        _ => (winner.rank.setting.name.as_str(), MASTER_ADDR),
    };
    EnvErrorKind::Missing { set: set.to_owned(), missing }
}
