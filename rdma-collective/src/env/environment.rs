//! All that the variables of a process say, and which of them said it.

use super::local_ranks::RDMA_JOB_TOKEN;
use super::reader::Reader;
use super::table::VARIABLES;
use super::{Launch, Meeting, NcclOptions, Variables, launch};
use crate::env::{EnvError, Setting};

/// What the variables say.
///
/// ```
/// use rdma_collective::env::{Environment, Launcher, Variables};
///
/// let variables = Variables::from_iter([
///     ("OMPI_COMM_WORLD_RANK", "1"),
///     ("OMPI_COMM_WORLD_SIZE", "4"),
///     ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
///     ("PMIX_NAMESPACE", "143065089"),
///     ("NCCL_IB_HCA", "mlx5_0:1"),
/// ]);
/// let environment = Environment::read(&variables)?;
/// let launch = environment.launch.as_ref().expect("Open MPI's variables are set");
/// assert_eq!((launch.launcher, launch.rank, launch.world), (Launcher::OpenMpi, 1, 4));
/// assert!(environment.report().contains(&"NCCL_IB_HCA set by environment to mlx5_0:1".to_owned()));
/// # Ok::<(), rdma_collective::env::EnvError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Environment {
    /// Which rank this is; `None` when no launcher has said so.
    pub launch: Option<Launch>,
    /// What NCCL's variables ask for.
    pub nccl: NcclOptions,
    /// The variables that give a rank.
    set: Vec<Setting>,
}

impl Environment {
    /// Reads them; an empty variable counts as unset.
    ///
    /// # Errors
    ///
    /// [`EnvError`] quotes what cannot be read, what is missing, and what contradicts each other.
    pub fn read(variables: &Variables) -> Result<Self, EnvError> {
        let reader = Reader::new(variables);
        let nccl = NcclOptions::by(&reader, variables)?;
        let launch = launch::find(&reader)?;
        // Those that the report quotes.
        let known = VARIABLES.iter().filter(|variable| variable.gives_rank).filter_map(|variable| {
            let value = variables.get(variable.name)?.to_string_lossy().into_owned();
            Some(Setting { name: variable.name.to_owned(), value })
        });
        Ok(Self { launch, nccl, set: known.collect() })
    }

    /// That of this process.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn of_process() -> Result<Self, EnvError> {
        Self::read(&Variables::of_process())
    }

    /// Lines that say which variables won, which lost and where the ranks meet: to be said once, at INFO.
    #[must_use]
    pub fn report(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(launch) = &self.launch {
            let Launch { launcher, rank, world, by: [one, other], .. } = launch;
            lines.push(format!("{launcher}: rank {rank} of {world} by {one} and {other}"));
            lines.push(match &launch.meeting {
                Meeting::Served(at) => {
                    format!("ranks meet at {at} (by {}), where their launcher serves", at.by)
                }
                Meeting::Address(at) => {
                    format!("ranks meet at {at} (by {}) or, when that port is taken, at one above", at.by)
                }
                Meeting::BesideTorch(at) => {
                    format!(
                        "ranks meet at a port derived from {at} (by {}), where torch's own store is",
                        at.by
                    )
                }
                Meeting::Namespace(name) => format!("ranks meet on this host, by the name {name}"),
            });
            for other in &launch.overruled {
                lines.push(format!("{other} is another address, and does not count"));
            }
            for other in self.set.iter().filter(|other| other.value != one.value) {
                lines.push(format!("{other} is another numbering: {launcher} started this process"));
            }
            if launch.token.is_some() {
                lines.push(format!("{RDMA_JOB_TOKEN} set by environment"));
            }
        }
        lines.extend(self.nccl.report());
        lines
    }
}
