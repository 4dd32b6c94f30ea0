//! The handle of the store's server: options, listening, and the orderly end. The loop of its thread is in `serve`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rdma_core::memory::OwnProcess;
use rdma_core::strangers::STRANGERS_MAX;
use rustix::event::{EventfdFlags, eventfd};
use socket2::{Domain, Socket, Type};

use super::JobToken;
use super::by_name::NameListener;
use super::message::Ranks;
use super::serve::{Mode, Service};
use super::store::Served;
use super::store_client::claim;
use crate::bootstrap::BootstrapError;

/// The most ranks that meet in one store.
const WORLD_MAX: u32 = 65536;
/// Connections that the kernel queues until they are accepted; the kernel's own limit may be lower.
const BACKLOG: i32 = 4096;

/// Options of a [`StoreServer`].
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The job's token.
    pub token: JobToken,
    /// The number of ranks of the job, 1 to 65536.
    pub world: u32,
    /// The time that a connection has to join (default 5 s). With a longer time, strangers hold descriptors for longer.
    pub hello_timeout: Duration,
    /// The time that one request or answer may take on the wire (default 30 s). A rank that is stopped for longer in
    /// the middle of one is dropped.
    pub transfer_timeout: Duration,
    /// The limit on connections at once (default: the number of ranks and 256 more). Connections that have not joined
    /// take a quarter of the free descriptors at most, and 256 in all; the software device's listeners and KV links
    /// count into the same sum. At a limit a new connection takes the place of the oldest one that has not joined.
    pub connections_max: usize,
}

impl StoreOptions {
    /// The default options for a job of `world` ranks.
    #[must_use]
    pub fn new(token: JobToken, world: u32) -> Self {
        Self {
            token,
            world,
            hello_timeout: Duration::from_secs(5),
            transfer_timeout: Duration::from_secs(30),
            connections_max: world as usize + STRANGERS_MAX,
        }
    }
}

/// The server of the store of one job, on a thread of its own.
///
/// Dropping it closes all connections at once; [`StoreServer::close`] lets the ranks finish first.
///
/// ```
/// use std::time::Duration;
/// use rdma_collective::bootstrap::{JobToken, Join, StoreClient, StoreOptions, StoreServer};
/// use rdma_core::Deadline;
///
/// let token = JobToken::random()?;
/// let server = StoreServer::bind("127.0.0.1:0".parse()?, StoreOptions::new(token, 1))?;
/// let deadline = Deadline::after(Duration::from_secs(10));
///
/// let join = Join { address: server.address(), token, rank: 0, world: 1 };
/// let mut client = StoreClient::connect(join, deadline)?;
/// client.set("leader", b"10.0.0.1:4791", deadline)?;
/// assert_eq!(client.get("leader", deadline)?, b"10.0.0.1:4791");
///
/// drop(client);
/// server.close(deadline)?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug)]
pub struct StoreServer {
    address: SocketAddr,
    wake: Arc<OwnedFd>,
    mode: Arc<Mutex<Mode>>,
    /// The listener at which ranks of this host get the address and the token, after
    /// [`bind_by_name`](Self::bind_by_name).
    name_listener: Option<NameListener>,
    /// The thread; `None` once it was joined. A forked child has no such thread, and must not join it.
    thread: OwnProcess<Option<JoinHandle<io::Result<Ranks>>>>,
}

impl StoreServer {
    /// Listens at `address` (port 0 picks a free port), and starts to serve.
    ///
    /// # Errors
    /// [`BootstrapError::WorldSize`] for 0 or more than 65536 ranks, [`BootstrapError::Listen`] if the address is taken
    /// or not of this machine, [`BootstrapError::Serve`] at a limit on descriptors or threads.
    pub fn bind(address: SocketAddr, options: StoreOptions) -> Result<Self, BootstrapError> {
        Self::bind_as(address, options, Served::default())
    }

    /// Serves the job that `served` describes, whose number and process this call adds.
    fn bind_as(address: SocketAddr, options: StoreOptions, served: Served) -> Result<Self, BootstrapError> {
        if options.world == 0 || options.world > WORLD_MAX {
            return Err(BootstrapError::WorldSize { world: options.world, world_max: WORLD_MAX });
        }
        let listener = listen(address).map_err(|source| BootstrapError::Listen { address, source })?;
        let address = listener.local_addr().map_err(|source| BootstrapError::Listen { address, source })?;
        let failed = |what| move |source| BootstrapError::Serve { what, source };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(wake.map_err(|errno| failed("make a descriptor")(errno.into()))?);
        let mode = Arc::new(Mutex::new(Mode::Serve));
        let number =
            getrandom::u64().map_err(|error| BootstrapError::Random { reason: error.to_string() })?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let served = Served { number, host, pid: std::process::id(), ..served };
        let service = Service::new(listener, Arc::clone(&wake), Arc::clone(&mode), options, served);
        let thread = std::thread::Builder::new().name("store".into()).spawn(|| service.run());
        let thread = OwnProcess::new(Some(thread.map_err(failed("start a thread"))?));
        Ok(Self { address, wake, mode, name_listener: None, thread })
    }

    /// Listens at the first of `ports` that is free, starts to serve, and asks the servers at the other ports whether
    /// one of them serves a job with the same token.
    ///
    /// Until all ranks have joined, a second process that comes as one of them ends the job, because ranks of two jobs
    /// may have met then. A server that does not answer within a second is passed over.
    ///
    /// # Errors
    /// [`BootstrapError::Mixed`] if another store has the same token; if not all of its ranks have joined, its job
    /// ends, too. [`BootstrapError::NoFreePort`] if no port is free; otherwise the errors of [`bind`](Self::bind).
    pub fn bind_first(ip: IpAddr, ports: &[u16], options: &StoreOptions) -> Result<Self, BootstrapError> {
        Self::bind_run(ip, ports, options, "", Deadline::after(Duration::MAX))
    }

    /// [`bind_first`](Self::bind_first) for the run of a launcher. Stores of other runs are passed over. The servers at
    /// the other ports have at most a quarter of the time until the deadline.
    pub(crate) fn bind_run(
        ip: IpAddr,
        ports: &[u16],
        options: &StoreOptions,
        run: &str,
        deadline: Deadline,
    ) -> Result<Self, BootstrapError> {
        let (mut own, mut others) = (None, Vec::new());
        for port in ports {
            let served = Served { run: run.to_owned(), at_ports: true, ..Served::default() };
            let at = SocketAddr::new(ip, *port);
            match own {
                None => match Self::bind_as(at, options.clone(), served) {
                    Ok(server) => own = Some(server),
                    Err(BootstrapError::Listen { source, .. })
                        if source.kind() == io::ErrorKind::AddrInUse =>
                    {
                        others.push(from_this_host(at));
                    }
                    Err(error) => return Err(error),
                },
                Some(_) => others.push(from_this_host(at)),
            }
        }
        // Asked only after the own store has begun to serve: of two processes that do so at once, the later one finds
        // the other's store.
        let claim =
            |addresses: &[SocketAddr]| claim(addresses, (options.token, options.world), run, deadline);
        if let Some(error) = claim(&others) {
            if let Some(server) = own {
                // The own store ends its job, so that ranks that have joined already hear why.
                let _ = claim(&[from_this_host(server.address)]);
            }
            return Err(error);
        }
        own.ok_or_else(|| BootstrapError::NoFreePort { host: ip, ports: ports.to_vec() })
    }

    /// Serves the ranks of this host, which find the store by the job's name with
    /// [`StoreClient::connect_by_name`](super::StoreClient::connect_by_name).
    ///
    /// Processes of other users are sent away. Once all ranks have found the store, the name is free again.
    ///
    /// # Errors
    /// [`BootstrapError::NameTaken`] if another process holds the name, [`BootstrapError::Impostor`] if that process is
    /// of another user; otherwise the errors of [`bind`](Self::bind).
    pub fn bind_by_name(name: &str, options: StoreOptions) -> Result<Self, BootstrapError> {
        let (token, world) = (options.token, options.world);
        let mut server = Self::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), options)?;
        server.name_listener = Some(NameListener::open(name, server.address, token, world)?);
        Ok(server)
    }

    /// The address at which the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the server in good order: no rank can join any more, and the ranks that have joined may finish and leave.
    ///
    /// A client in this process counts, too: drop it before, otherwise the call waits until the deadline.
    ///
    /// # Errors
    /// [`BootstrapError::StillJoined`] with the ranks that had not left at the deadline; their connections are closed
    /// all the same. [`BootstrapError::Serve`] if the server had failed before, with the reason.
    pub fn close(mut self, deadline: Deadline) -> Result<(), BootstrapError> {
        self.thread.get()?;
        let ranks = self.end(deadline.instant());
        let ranks = ranks.map_err(|source| BootstrapError::Serve { what: "go on", source })?;
        if ranks.count > 0 {
            return Err(BootstrapError::StillJoined { ranks: ranks.into() });
        }
        Ok(())
    }

    /// Ends the thread at `by` at the latest, and returns the ranks that had not left.
    fn end(&mut self, by: Instant) -> io::Result<Ranks> {
        self.name_listener = None;
        // A forked child drops nothing but its copies of the descriptors.
        let Ok(Some(thread)) = self.thread.get_mut().map(Option::take) else { return Ok(Ranks::default()) };
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner) = Mode::End { by };
        // The write fails only when the counter is full, and then the descriptor is readable already.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread of the store panicked")))
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        // An earlier failure of the server is reported by `close` only.
        let _ = self.end(Instant::now());
    }
}

/// The address by which this host reaches its own listener at `address`.
pub(crate) fn from_this_host(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}

/// A listener with a long queue. All ranks connect at once, and one that finds the queue full loses about a second to
/// TCP's retransmission.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
