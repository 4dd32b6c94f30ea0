//! The ranks of a job as processes of this host, started by a parent that serves their store and ended with it.
//!
//! This is for programs that run on one host, and for tests; several hosts need a launcher.

use std::env;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rdma_core::memory::OwnProcess;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::{JobToken, Join, StoreOptions, StoreServer};
use crate::bootstrap::{BootstrapError, SpawnError};
use crate::env::Variables;

/// The variable that makes a process one of [`LocalRanks`].
const TOKEN: &str = "RDMA_JOB_TOKEN";
/// The variable with the pid of the process that started the ranks.
const PARENT: &str = "RDMA_PARENT_PID";
/// The time that the other ranks have to end by themselves once one has failed: they have errors to print.
const GRACE: Duration = Duration::from_secs(15);
/// The time that killed processes have to be gone.
const KILLED_WITHIN: Duration = Duration::from_secs(2);
/// The pause between two looks at the processes.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The ranks of one job, each a process of this host, and the store where they meet.
///
/// Dropping it kills the ranks. They are also killed when the **thread** that started them ends: the kernel ties them
/// to the thread, not to the process. So start them from a thread that lives as long as they do.
///
/// ```no_run
/// use std::time::Duration;
/// use rdma_collective::bootstrap::{LocalRanks, StoreClient};
/// use rdma_core::Deadline;
///
/// let deadline = Deadline::after(Duration::from_secs(60));
/// match LocalRanks::joined()? {
///     None => LocalRanks::spawn(4, |_| LocalRanks::same_program())?.wait(deadline)?,
///     Some(join) => {
///         let store = StoreClient::connect(join, deadline)?;
///         println!("rank {} of {}", store.rank(), store.world());
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug)]
pub struct LocalRanks {
    /// The ranks that run. A forked child must not kill them.
    running: OwnProcess<Vec<(u32, Child)>>,
    /// The first rank that failed, with its status.
    failed: Option<(u32, ExitStatus)>,
    /// The store, held until the last rank has ended.
    _server: StoreServer,
    /// Not `Send`, because the kernel ends the ranks with the thread that started them.
    not_send: PhantomData<*const ()>,
}

impl LocalRanks {
    /// Serves a store on a free port of the loopback interface, and starts `command` once for each of `ranks`.
    ///
    /// Each process gets the variables by which [`joined`](Self::joined) finds the store: `RANK`, `WORLD_SIZE`,
    /// `LOCAL_RANK`, `LOCAL_WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT` with torchrun's meaning, and the job's token.
    ///
    /// # Errors
    ///
    /// [`SpawnError::Bootstrap`] without a store, [`SpawnError::Start`] if a process could not be started. Processes
    /// that were started before are then killed.
    pub fn spawn(ranks: u32, mut command: impl FnMut(u32) -> Command) -> Result<Self, SpawnError> {
        let token = JobToken::random()?;
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = StoreServer::bind(loopback, StoreOptions::new(token, ranks))?;
        let address = server.address();
        let mut spawned = Self {
            running: OwnProcess::new(Vec::with_capacity(ranks as usize)),
            failed: None,
            _server: server,
            not_send: PhantomData,
        };
        for rank in 0..ranks {
            let mut command = command(rank);
            let (own, all) = (rank.to_string(), ranks.to_string());
            command
                .envs([
                    ("RANK", &own),
                    ("LOCAL_RANK", &own),
                    ("WORLD_SIZE", &all),
                    ("LOCAL_WORLD_SIZE", &all),
                ])
                .env("MASTER_ADDR", address.ip().to_string())
                .env("MASTER_PORT", address.port().to_string())
                .env(TOKEN, token.to_hex())
                .env(PARENT, std::process::id().to_string());
            let child = command.spawn().map_err(|source| SpawnError::Start {
                rank,
                program: command.get_program().to_string_lossy().into_owned(),
                source,
            })?;
            spawned.running.unasked_mut().push((rank, child));
        }
        Ok(spawned)
    }

    /// A command that starts this program again, with the arguments that it was started with.
    #[must_use]
    pub fn same_program() -> Command {
        // Without a known path, the name that started this process finds the program again.
        let program = env::current_exe().unwrap_or_else(|_| env::args_os().next().unwrap_or_default().into());
        let mut command = Command::new(program);
        command.args(env::args_os().skip(1));
        command
    }

    /// Reads the store and the rank of this process from its variables; `None` if the process is none of
    /// [`LocalRanks`]. An empty variable counts as unset.
    ///
    /// From this call on the process is killed when its parent ends.
    ///
    /// # Errors
    ///
    /// [`SpawnError::Variable`] if a variable is missing or cannot be read, [`SpawnError::Orphan`] if the parent is
    /// gone.
    pub fn joined() -> Result<Option<Join>, SpawnError> {
        let variables = Variables::of_process();
        let Some(token) = variables.get(TOKEN) else { return Ok(None) };
        let token = token.to_str().and_then(|token| token.parse().ok());
        let token = token.ok_or(SpawnError::Variable { name: TOKEN, value: "(secret)".to_owned() })?;
        let number = |name| variable::<u32>(&variables, name);
        let parent = variable::<i32>(&variables, PARENT)?;
        let address =
            SocketAddr::new(variable(&variables, "MASTER_ADDR")?, variable(&variables, "MASTER_PORT")?);
        let join = Join { address, token, rank: number("RANK")?, world: number("WORLD_SIZE")? };
        if !end_with(parent) {
            return Err(SpawnError::Orphan { parent });
        }
        Ok(Some(join))
    }

    /// The rank and the pid of each process that has not been seen to end.
    pub fn processes(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.running.unasked().iter().map(|(rank, child)| (*rank, child.id()))
    }

    /// Waits until all ranks have ended.
    ///
    /// Once a rank has failed, the others have 15 s to end by themselves; then they are killed.
    ///
    /// # Errors
    ///
    /// [`SpawnError::Failed`] names the first rank that ended with a status other than 0, and the ranks that had to be
    /// killed. [`SpawnError::DeadlineExceeded`] names the ranks that had not ended at the deadline, and were killed.
    pub fn wait(mut self, deadline: Deadline) -> Result<(), SpawnError> {
        self.running.get().map_err(BootstrapError::from)?;
        let started = Instant::now();
        let mut until = deadline;
        while !self.running.unasked().is_empty() {
            if self.reap()? && self.failed.is_some() {
                until = until.min(Deadline::after(GRACE));
            }
            if self.running.unasked().is_empty() {
                break;
            }
            if until.expired() {
                break;
            }
            std::thread::sleep(LOOK_EVERY.min(until.remaining()));
        }
        let killed: Vec<u32> = self.running.unasked().iter().map(|(rank, _)| *rank).collect();
        let failed = self.failed;
        self.kill();
        match failed {
            Some((rank, status)) => Err(SpawnError::Failed { rank, status, killed }),
            None if killed.is_empty() => Ok(()),
            None => Err(SpawnError::DeadlineExceeded { ranks: killed, waited: started.elapsed() }),
        }
    }

    /// Collects the processes that have ended, and returns whether the first failure was among them.
    fn reap(&mut self) -> Result<bool, SpawnError> {
        let failed_before = self.failed.is_some();
        let mut at = 0;
        let running = self.running.unasked_mut();
        while let Some((rank, child)) = running.get_mut(at) {
            let rank = *rank;
            match child.try_wait().map_err(|source| SpawnError::Watch { rank, source })? {
                None => at += 1,
                Some(status) => {
                    running.swap_remove(at);
                    if !status.success() {
                        self.failed.get_or_insert((rank, status));
                    }
                }
            }
        }
        Ok(!failed_before && self.failed.is_some())
    }

    fn kill(&mut self) {
        for (_, child) in self.running.unasked_mut() {
            // Fails only if the process has ended by itself.
            let _ = child.kill();
        }
        let deadline = Deadline::after(KILLED_WITHIN);
        while !self.running.unasked().is_empty() && !deadline.expired() {
            if self.reap().is_err() {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for LocalRanks {
    fn drop(&mut self) {
        if self.running.get().is_ok_and(|running| !running.is_empty()) {
            self.kill();
        }
    }
}

/// Has the kernel kill this process when its parent ends; `false` if the parent has ended already.
pub(crate) fn end_with(parent: i32) -> bool {
    // On a system that refuses, ranks whose parent dies end by their deadlines.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // The signal first, then the check: a parent that ends in between is seen by one of the two.
    getppid().map(Pid::as_raw_pid) == Some(parent)
}

fn variable<T: std::str::FromStr>(variables: &Variables, name: &'static str) -> Result<T, SpawnError> {
    let value = variables.get(name).unwrap_or_default().to_string_lossy().into_owned();
    value.parse().map_err(|_| SpawnError::Variable { name, value })
}
