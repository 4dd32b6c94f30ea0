//! The environment of a process, read and checked as a whole, and the report of which variable decided what.

use super::names::RDMA_JOB_TOKEN;
use super::reader::Reader;
use super::table::VARIABLES;
use super::{Launch, Meeting, NcclOptions, Variables, launch};
use crate::env::{EnvError, Setting};

/// The launch and the options that a process's variables describe.
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
    /// The rank of this process and its job; `None` if no launcher's variables are set.
    pub launch: Option<Launch>,
    /// The options that NCCL's variables ask for.
    pub nccl: NcclOptions,
    /// The variables that are set and give a rank, for the report.
    set: Vec<Setting>,
}

impl Environment {
    /// Reads and checks the variables. An empty variable counts as unset.
    ///
    /// # Errors
    ///
    /// [`EnvError`] quotes the variables that cannot be read, are missing, or contradict each other.
    pub fn read(variables: &Variables) -> Result<Self, EnvError> {
        let reader = Reader::new(variables);
        let nccl = NcclOptions::by(&reader, variables)?;
        let launch = launch::find(&reader)?;
        // The report quotes these, to name the numberings that did not win.
        let known = VARIABLES.iter().filter(|variable| variable.gives_rank).filter_map(|variable| {
            let value = variables.get(variable.name)?.to_string_lossy().into_owned();
            Some(Setting { name: variable.name.to_owned(), value })
        });
        Ok(Self { launch, nccl, set: known.collect() })
    }

    /// Reads and checks the variables of this process.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Self::read).
    pub fn of_process() -> Result<Self, EnvError> {
        Self::read(&Variables::of_process())
    }

    /// Lines for the log, once and at INFO: the variables that decided, those that were overruled, and where the ranks
    /// meet.
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
