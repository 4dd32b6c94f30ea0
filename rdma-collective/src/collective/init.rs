//! The newcomer's door: one call from the environment, or from nothing, to a communicator.
//!
//! This file only strings the steps together: `env` reads the launchers' variables, meets the other ranks and chooses
//! the device; `engine` and `communicator` do the rest. A program that needs another order of them calls them itself,
//! as [`env::join`](crate::env::join) shows.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use rdma_core::{Deadline, Device, SoftOptions, Wire};

use super::CommunicatorError;
use super::communicator::tuning::TuningError;
use super::communicator::{Communicator, CommunicatorOptions, LANES_MAX};
use crate::bootstrap::{BootstrapError, JobToken, Join, LocalRanks, SpawnError};
use crate::bootstrap::{StoreClient, StoreOptions, StoreServer};
use crate::engine::{Engine, EngineOptions};
use crate::env::{Environment, JoinError, Joined, SelectError};

/// Options of [`Communicator::init_with`]. Every rank passes the same but for `device`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitOptions {
    /// The time within which all ranks must have met and connected (60 s: pods and jobs start seconds apart).
    pub timeout: Duration,
    /// The device by its name, `soft` for the software device, `rdma` for the first RDMA device that works, as far as
    /// NCCL's variables allow it, or `auto` (`auto`): that one, else the software device. Several names with commas
    /// between make an engine [over all of them](Engine::over); all ranks name as many.
    pub device: String,
    /// The wire of the software device ([`Wire::Auto`]: shared memory on one host, TCP between hosts).
    pub wire: Wire,
    /// Options of the communicator. The variables `NCCL_ALGO`, `NCCL_HOSTID`,
    /// `NCCL_IB_QPS_PER_CONNECTION` and `RDMA_TUNING_FILE` override them.
    pub communicator: CommunicatorOptions,
}

impl Default for InitOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            device: "auto".to_owned(),
            wire: Wire::Auto,
            communicator: CommunicatorOptions::default(),
        }
    }
}

/// The reason why [`Communicator::init`] made no communicator; the text says which step failed and what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// The launcher's variables contradict each other, or the ranks did not meet.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The device cannot be used.
    #[error(transparent)]
    Device(#[from] SelectError),
    /// `NCCL_ALGO` or the tuning file cannot be read.
    #[error(transparent)]
    Tuning(#[from] TuningError),
    /// The ranks met, and this one or another could not be connected.
    #[error(transparent)]
    Communicator(#[from] CommunicatorError),
    /// The ranks on this host did not start, or one of them failed.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
}

impl Communicator {
    /// Makes the communicator of all ranks that the launcher started, or of this process alone without a launcher.
    ///
    /// The launchers are torchrun, mpirun, srun, Kubernetes jobs and [`LocalRanks`]; `docs/environment.md` lists the
    /// variables. The device is the first RDMA device that works, else the software device. NCCL's variables apply. The
    /// choices are logged at INFO with `tracing`.
    ///
    /// [`split`](Self::split) makes more communicators. After a failure, all ranks make the next one by
    /// [`init_with`](Self::init_with) with the next [`epoch`](CommunicatorOptions::epoch). Ranks that [`LocalRanks`]
    /// started can do neither `init` nor `init_with` a second time, because the store of their parent admits each rank
    /// once; they keep the store of [`env::join`](crate::env::join) instead.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::collective::{Communicator, ReduceOp};
    /// use rdma_core::Deadline;
    ///
    /// let mut comm = Communicator::init()?;
    /// let mut data = [1.5_f32; 4];
    /// comm.all_reduce(&mut data, ReduceOp::Sum, Deadline::after(Duration::from_secs(5)))?;
    /// assert_eq!(data, [1.5 * comm.size() as f32; 4]);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InitError`]: the step that failed, and what to do.
    #[doc(alias = "ncclCommInitRank")]
    #[doc(alias = "MPI_Init")]
    pub fn init() -> Result<Self, InitError> {
        Self::init_with(InitOptions::default())
    }

    /// As [`init`](Self::init), with another timeout, device or options.
    ///
    /// ```
    /// use rdma_collective::collective::{Communicator, InitOptions};
    ///
    /// let options = InitOptions { device: "soft".to_owned(), ..InitOptions::default() };
    /// let comm = Communicator::init_with(options)?;
    /// assert!(comm.rank() < comm.size());
    /// # Ok::<(), rdma_collective::collective::InitError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`init`](Self::init).
    pub fn init_with(options: InitOptions) -> Result<Self, InitError> {
        let deadline = Deadline::after(options.timeout);
        Self::init_in(&Environment::of_process().map_err(JoinError::from)?, options, deadline)
    }

    /// As [`init`](Self::init); but without a launcher runs this program as `ranks` processes on this host, waits for
    /// them, and returns `None` in the parent after all of them have ended.
    ///
    /// The processes are started with the arguments of this one and return `Some` from this call, so call it before the
    /// program has done anything that should happen once. A rank meets the others by `deadline`; the process that
    /// started the ranks kills those that have not ended by then.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use rdma_collective::collective::Communicator;
    /// use rdma_core::Deadline;
    ///
    /// let deadline = Deadline::after(Duration::from_secs(60));
    /// let Some(comm) = Communicator::init_or_spawn(2, deadline)? else { return Ok(()) };
    /// println!("rank {} of {}", comm.rank(), comm.size());
    /// # Ok::<(), rdma_collective::collective::InitError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`init`](Self::init); [`InitError::Spawn`] in the process that started the ranks names the rank that
    /// failed.
    pub fn init_or_spawn(ranks: u32, deadline: Deadline) -> Result<Option<Self>, InitError> {
        let environment = Environment::of_process().map_err(JoinError::from)?;
        if environment.launch.is_none() {
            LocalRanks::spawn(ranks, |_| LocalRanks::same_program())?.wait(deadline)?;
            return Ok(None);
        }
        Self::init_in(&environment, InitOptions::default(), deadline).map(Some)
    }

    fn init_in(
        environment: &Environment,
        options: InitOptions,
        deadline: Deadline,
    ) -> Result<Self, InitError> {
        for line in environment.report() {
            crate::log::info!("{line}");
        }
        let mut joined = match &environment.launch {
            Some(launch) => launch.join(deadline)?,
            None => alone(deadline).map_err(JoinError::from)?,
        };
        let InitOptions { device, wire, mut communicator, .. } = options;
        environment.nccl.apply_to_communicator(&mut communicator)?;
        let soft = |number| SoftOptions {
            name: format!("soft{number}"),
            address: joined.address,
            wire,
            ..SoftOptions::default()
        };
        let names: Vec<&str> = device.split(',').collect();
        let selected = environment.nccl.select_each(&names, soft, None)?;
        let devices: Vec<_> = selected
            .into_iter()
            .map(|device| (device.context.clone(), device.engine_options(&environment.nccl)))
            .collect();
        // A pod's variable is for each device, and may ask for more than there can be.
        let room = (LANES_MAX / devices.len().clamp(1, LANES_MAX.into()) as u8).max(1);
        if environment.nccl.qps_per_connection.is_some_and(|asked| asked > room) {
            crate::log::warn!("each device has {room} queue pairs to a peer, which is the most for {device}");
            communicator.lanes = communicator.lanes.min(room);
        }
        let engine = Engine::over(&devices).map_err(CommunicatorError::from)?;
        let comm = Self::new(&engine, &mut joined.store, communicator, deadline)?;
        // Rank 0 serves the store: it must not leave before the others have read what they need from it.
        joined.close(deadline).map_err(JoinError::from)?;
        Ok(comm)
    }

    /// Runs `body` on `ranks` threads, each of which is a rank: the fixture of examples in documentation.
    #[doc(hidden)]
    pub fn on_threads(
        ranks: u32,
        body: impl Fn(&mut Self) -> Result<(), Box<dyn Error + Send + Sync>> + Sync,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let (server, token) = serve(ranks)?;
        let address = server.address();
        let run = &|rank| -> Result<(), Box<dyn Error + Send + Sync>> {
            let deadline = Deadline::after(Duration::from_secs(30));
            let mut store = StoreClient::connect(Join { address, token, rank, world: ranks }, deadline)?;
            let engine =
                Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
            let mut comm = Self::new(&engine, &mut store, CommunicatorOptions::default(), deadline)?;
            body(&mut comm)?;
            Ok(comm.close(deadline)?)
        };
        thread::scope(|scope| {
            let start = |rank| scope.spawn(move || run(rank).map_err(|error| error.to_string()));
            let threads: Vec<_> = (0..ranks).map(start).collect();
            for thread in threads {
                thread.join().map_err(|_| "a rank panicked")??;
            }
            Ok(())
        })
    }
}

/// Meets nobody: this process is the only rank, and serves the store to itself.
fn alone(deadline: Deadline) -> Result<Joined, BootstrapError> {
    let (server, token) = serve(1)?;
    let address = server.address();
    let store = StoreClient::connect(Join { address, token, rank: 0, world: 1 }, deadline)?;
    Ok(Joined { store, server: Some(server), address: address.ip() })
}

/// Serves a store on a free port of this host.
fn serve(ranks: u32) -> Result<(StoreServer, JobToken), BootstrapError> {
    let (loopback, token) = (SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), JobToken::random()?);
    Ok((StoreServer::bind(loopback, StoreOptions::new(token, ranks))?, token))
}
