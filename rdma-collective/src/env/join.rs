//! The meeting of the ranks at the place that a launcher's variables give: rank 0 serves the store, and all join it.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rdma_core::Deadline;

use super::meeting::Endpoint;
use super::names::RDMA_JOB_TOKEN;
use super::resolve::{any, of_this_host, resolve, to_listen};
use super::{Environment, Launch, Meeting};
use crate::bootstrap::{BootstrapError, Elsewhere, JobToken, Join, StoreClient, StoreOptions, StoreServer};
use crate::bootstrap::{end_with, from_this_host, meeting_ports};
use crate::env::error::EnvErrorKind;
use crate::env::{EnvError, JoinError};

/// The time after which a name is looked up again: a pod that is restarted has another address.
const LOOK_UP_AGAIN: Duration = Duration::from_secs(10);

/// A rank that has met the other ranks of its job.
///
/// Returned by [`join`](crate::env::join).
#[derive(Debug)]
#[non_exhaustive]
pub struct Joined {
    /// The connection of this rank to the store.
    pub store: StoreClient,
    /// The server of the store, if this process serves it (at rank 0, unless the launcher serves). Keep it as long as
    /// other ranks may need the store.
    pub server: Option<StoreServer>,
    /// The address of this host by which others most likely reach it, for devices that need one.
    pub address: IpAddr,
}

/// Reads the variables of this process, and meets the other ranks.
///
/// [`Environment::report`] is logged at INFO, by `tracing`.
///
/// ```no_run
/// use std::time::Duration;
/// use rdma_collective::env;
/// use rdma_collective::collective::{Communicator, CommunicatorOptions};
/// use rdma_collective::engine::Engine;
/// use rdma_core::{Deadline, SoftOptions};
///
/// let deadline = Deadline::after(Duration::from_secs(60));
/// let (environment, mut joined) = env::join(deadline)?;
/// // An RDMA device if there is one that NCCL's variables allow; else the software device, at an address of this host.
/// let soft = SoftOptions { address: joined.address, ..SoftOptions::default() };
/// let selected = environment.nccl.select("auto", soft, None)?;
/// let engine = Engine::new(&selected.context, selected.engine_options(&environment.nccl))?;
/// let comm = Communicator::new(&engine, &mut joined.store, CommunicatorOptions::default(), deadline)?;
/// println!("rank {} of {}", comm.rank(), comm.size());
/// joined.close(deadline)?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// # Errors
///
/// [`JoinError::Env`] if no launcher's variables are set, or if they contradict each other; otherwise the errors of
/// [`Launch::join`].
pub fn join(deadline: Deadline) -> Result<(Environment, Joined), JoinError> {
    let environment = Environment::of_process()?;
    for line in environment.report() {
        crate::log::info!("{line}");
    }
    let joined = environment.launch.as_ref().ok_or(EnvError(EnvErrorKind::NoLauncher))?.join(deadline)?;
    Ok((environment, joined))
}

impl Joined {
    /// Leaves the store. The rank that serves it waits until all others have left, too.
    ///
    /// # Errors
    ///
    /// The errors of [`StoreServer::close`].
    pub fn close(self, deadline: Deadline) -> Result<(), BootstrapError> {
        drop(self.store);
        self.server.map_or(Ok(()), |server| server.close(deadline))
    }
}

impl Launch {
    /// Meets the other ranks.
    ///
    /// From this call on, a rank that [`LocalRanks`](crate::bootstrap::LocalRanks) started is killed when its parent
    /// ends.
    ///
    /// # Errors
    ///
    /// [`JoinError::Bootstrap`] with the addresses that were tried and the answers of other programs there;
    /// [`JoinError::Orphan`] if the parent is gone.
    pub fn join(&self, deadline: Deadline) -> Result<Joined, JoinError> {
        if let Some(parent) = self.parent
            && !end_with(parent.cast_signed())
        {
            return Err(JoinError::Orphan { parent });
        }
        let outcome = match &self.meeting {
            Meeting::Served(endpoint) => self.join_served(endpoint, deadline),
            Meeting::Address(endpoint) => self.join_ports(endpoint, false, deadline),
            Meeting::BesideTorch(endpoint) => self.join_ports(endpoint, true, deadline),
            Meeting::Namespace(name) => self.join_by_name(name.as_str(), deadline),
        };
        let mut joined = outcome?;
        if self.parent.is_none() && !matches!(self.meeting, Meeting::Served(_)) {
            joined.store.set_served_by(0);
        }
        Ok(joined)
    }

    /// The token of ranks that meet at a port: the job's, or one derived from the port, which is no secret.
    fn token_for(&self, port: u16) -> JobToken {
        self.token.unwrap_or_else(|| JobToken::derived(&["port", &port.to_string()]))
    }

    fn join_served(&self, endpoint: &Endpoint, deadline: Deadline) -> Result<Joined, BootstrapError> {
        let address = SocketAddr::new(resolve(endpoint, deadline)?, endpoint.port);
        let (rank, world) = (self.rank, self.world);
        let join = Join { address, token: self.token_for(endpoint.port), rank, world };
        let store = StoreClient::connect(join, deadline)?;
        let address = store.local_address()?.ip();
        Ok(Joined { store, server: None, address })
    }

    fn join_ports(
        &self,
        endpoint: &Endpoint,
        taken: bool,
        deadline: Deadline,
    ) -> Result<Joined, BootstrapError> {
        let ports = meeting_ports(endpoint.port, taken);
        let (token, run) = (self.token_for(endpoint.port), self.job.as_deref().unwrap_or_default());
        if self.rank == 0 {
            let ip = resolve(endpoint, deadline)?;
            let several = self.local_world.map(|local| local < self.world);
            let options = StoreOptions::new(token, self.world);
            let listen = to_listen(&endpoint.host, ip, several);
            let bound = StoreServer::bind_run(listen, &ports, &options, run, deadline);
            return match bound {
                // The given address is none of this host's: the others may reach this host by a service's address, or
                // by a translated one. So listen on all interfaces, and warn.
                Err(BootstrapError::Listen { source, .. })
                    if source.kind() == ErrorKind::AddrNotAvailable =>
                {
                    let server = StoreServer::bind_run(any(ip), &ports, &options, run, deadline)?;
                    let elsewhere = Elsewhere { by: endpoint.setting(), ip, listens: server.address() };
                    crate::log::warn!("{elsewhere}");
                    let mut joined = self.join_own(server, token, run, deadline)?;
                    joined.store.set_elsewhere(elsewhere);
                    Ok(joined)
                }
                server => self.join_own(server?, token, run, deadline),
            };
        }
        let job = (token, self.rank, self.world);
        loop {
            let ip = resolve(endpoint, deadline)?;
            let until = if endpoint.host.parse::<IpAddr>().is_ok() {
                deadline
            } else {
                deadline.min(Deadline::after(LOOK_UP_AGAIN))
            };
            match StoreClient::find_run(ip, &ports, job, run, until) {
                Err(BootstrapError::NotFound { .. }) if !deadline.expired() => {}
                Err(BootstrapError::NotFound { host, ports, waited, source, .. }) => {
                    let by = Some(endpoint.setting());
                    return Err(BootstrapError::NotFound { host, ports, waited, source, by });
                }
                outcome => {
                    let store = outcome?;
                    let address = store.local_address()?.ip();
                    return Ok(Joined { store, server: None, address });
                }
            }
        }
    }

    /// Joins the store that this process itself serves.
    fn join_own(
        &self,
        server: StoreServer,
        token: JobToken,
        run: &str,
        deadline: Deadline,
    ) -> Result<Joined, BootstrapError> {
        let at = server.address();
        // Ranks that meet by name are on the loopback interface, with a token that the kernel hands to this user alone.
        if self.token.is_none() && self.world > 1 && !at.ip().is_loopback() {
            crate::log::warn!(
                "rank 0 listens on {at} and the job has no token, so whoever reaches that port can join; before the \
                 ranks are started, set one for all of them: export {RDMA_JOB_TOKEN}=$(openssl rand -hex 16)"
            );
        }
        let join = Join { address: from_this_host(at), token, rank: self.rank, world: self.world };
        let store = StoreClient::connect_run(&join, run, deadline)?;
        let address = if at.ip().is_unspecified() { of_this_host(at.ip()) } else { at.ip() };
        Ok(Joined { store, server: Some(server), address })
    }

    fn join_by_name(&self, name: &str, deadline: Deadline) -> Result<Joined, BootstrapError> {
        if self.rank == 0 {
            let token = self.token.map_or_else(JobToken::random, Ok)?;
            let server = StoreServer::bind_by_name(name, StoreOptions::new(token, self.world))?;
            return self.join_own(server, token, "", deadline);
        }
        let store = StoreClient::connect_by_name(name, self.rank, self.world, deadline)?;
        let address = store.local_address()?.ip();
        Ok(Joined { store, server: None, address })
    }
}
