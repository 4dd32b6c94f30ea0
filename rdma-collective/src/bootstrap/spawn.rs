//! Ranks as processes of this host: started by one that serves their store, ended with it.
//!
//! For programs that run alone, and for tests; several hosts need a launcher. What the ranks do is theirs.

use std::env;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::{JobToken, Join, StoreOptions, StoreServer};
use crate::bootstrap::SpawnError;
use crate::env::Variables;

/// The variable that makes a process one of [`LocalRanks`].
const TOKEN: &str = "RDMA_JOB_TOKEN";
/// The process that started it.
const PARENT: &str = "RDMA_PARENT_PID";
/// How long the others may take to end by themselves once a rank has failed: they have an error to print.
const GRACE: Duration = Duration::from_secs(15);
/// How long a killed process may take to be gone.
const KILLED_WITHIN: Duration = Duration::from_secs(2);
/// Pause between two looks at the processes.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The ranks of one job, each a process of this host, and the store where they meet.
///
/// Dropping it kills them. They are killed, too, when the thread that started them ends in whatever way.
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
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LocalRanks {
    running: Vec<(u32, Child)>,
    /// The first that failed.
    failed: Option<(u32, ExitStatus)>,
    /// Held until the last rank has ended.
    _server: StoreServer,
    /// The kernel ends the ranks with the thread that started them.
    not_send: PhantomData<*const ()>,
}

impl LocalRanks {
    /// Serves a store on a free port of the loopback interface, and starts `command` for each of `ranks` with variables
    /// by which [`joined`](Self::joined) finds it: `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`, `MASTER_ADDR`,
    /// `MASTER_PORT` as torchrun has them, and the job's token.
    ///
    /// # Errors
    ///
    /// [`SpawnError`]: no store, or a process that could not be started; those that were are killed.
    pub fn spawn(ranks: u32, mut command: impl FnMut(u32) -> Command) -> Result<Self, SpawnError> {
        let token = JobToken::random()?;
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = StoreServer::bind(loopback, StoreOptions::new(token, ranks))?;
        let address = server.address();
        let mut spawned = Self {
            running: Vec::with_capacity(ranks as usize),
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
            spawned.running.push((rank, child));
        }
        Ok(spawned)
    }

    /// This program with the arguments that it was started with.
    #[must_use]
    pub fn same_program() -> Command {
        // Where it cannot be found by itself, the system finds it as it did before.
        let program = env::current_exe().unwrap_or_else(|_| env::args_os().next().unwrap_or_default().into());
        let mut command = Command::new(program);
        command.args(env::args_os().skip(1));
        command
    }

    /// Which store this process is to join, and as whom, when it is one of [`LocalRanks`]; otherwise `None`. An empty
    /// variable counts as unset.
    ///
    /// From then on it is killed when its parent ends.
    ///
    /// # Errors
    ///
    /// [`SpawnError::Variable`] when the variables contradict each other, [`SpawnError::Orphan`] when the parent is gone.
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

    /// The processes that have not ended yet, by rank.
    pub fn processes(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.running.iter().map(|(rank, child)| (*rank, child.id()))
    }

    /// Waits until all have ended.
    ///
    /// Once one has failed the others have 15 seconds to end by themselves, then they are killed.
    ///
    /// # Errors
    ///
    /// [`SpawnError::Failed`] names the first that ended with anything but 0, and those that had to be killed then;
    /// [`SpawnError::DeadlineExceeded`] those that had not ended at the deadline.
    pub fn wait(mut self, deadline: Deadline) -> Result<(), SpawnError> {
        let started = Instant::now();
        let mut until = deadline;
        while !self.running.is_empty() {
            if self.reap()? && self.failed.is_some() {
                until = until.min(Deadline::after(GRACE));
            }
            if self.running.is_empty() {
                break;
            }
            if until.expired() {
                break;
            }
            std::thread::sleep(LOOK_EVERY.min(until.remaining()));
        }
        let killed: Vec<u32> = self.running.iter().map(|(rank, _)| *rank).collect();
        let failed = self.failed;
        self.kill();
        match failed {
            Some((rank, status)) => Err(SpawnError::Failed { rank, status, killed }),
            None if killed.is_empty() => Ok(()),
            None => Err(SpawnError::DeadlineExceeded { ranks: killed, waited: started.elapsed() }),
        }
    }

    /// Takes leave of those that have ended, and tells whether the first has just failed.
    fn reap(&mut self) -> Result<bool, SpawnError> {
        let failed_before = self.failed.is_some();
        let mut at = 0;
        while let Some((rank, child)) = self.running.get_mut(at) {
            let rank = *rank;
            match child.try_wait().map_err(|source| SpawnError::Watch { rank, source })? {
                None => at += 1,
                Some(status) => {
                    self.running.swap_remove(at);
                    if !status.success() {
                        self.failed.get_or_insert((rank, status));
                    }
                }
            }
        }
        Ok(!failed_before && self.failed.is_some())
    }

    fn kill(&mut self) {
        for (_, child) in &mut self.running {
            // It may have ended by itself.
            let _ = child.kill();
        }
        let deadline = Deadline::after(KILLED_WITHIN);
        while !self.running.is_empty() && !deadline.expired() {
            if self.reap().is_err() {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for LocalRanks {
    fn drop(&mut self) {
        if !self.running.is_empty() {
            self.kill();
        }
    }
}

/// Has this process killed when its parent ends; false when that has ended before.
pub(crate) fn end_with(parent: i32) -> bool {
    // A system that does not do this leaves the ranks to their deadlines.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // It may have ended before it was asked for.
    getppid().map(Pid::as_raw_pid) == Some(parent)
}

fn variable<T: std::str::FromStr>(variables: &Variables, name: &'static str) -> Result<T, SpawnError> {
    let value = variables.get(name).unwrap_or_default().to_string_lossy().into_owned();
    value.parse().map_err(|_| SpawnError::Variable { name, value })
}
