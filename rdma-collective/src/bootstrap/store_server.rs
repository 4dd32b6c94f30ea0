//! The server of the store, as the process that runs it sees it. Its loop is `serve`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rustix::event::{EventfdFlags, eventfd};
use socket2::{Domain, Socket, Type};

use super::JobToken;
use super::door::Door;
use super::message::Ranks;
use super::serve::{Mode, Service};
use crate::bootstrap::BootstrapError;

/// The most ranks that meet in one store.
const WORLD_MAX: u32 = 65536;
/// Connections that the system keeps until they are accepted; it may be set to keep fewer.
const BACKLOG: i32 = 4096;

/// What a [`StoreServer`] needs to know.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The job's token.
    pub token: JobToken,
    /// How many ranks the job has, 1 to 65536.
    pub world: u32,
    /// How long a connection may take to say who it is; longer costs descriptors to strangers. 5 s.
    pub hello_timeout: Duration,
    /// How long one request or answer may take on the wire; a rank that is stopped longer in the middle of one
    /// is dropped. 30 s.
    pub transfer_timeout: Duration,
    /// Connections at once. At the bound, and when the process has no descriptor left, a newcomer takes the place
    /// of the oldest stranger. 1024 more than the ranks.
    pub connections_max: usize,
}

impl StoreOptions {
    /// The defaults for a job of `world` ranks.
    #[must_use]
    pub fn new(token: JobToken, world: u32) -> Self {
        Self {
            token,
            world,
            hello_timeout: Duration::from_secs(5),
            transfer_timeout: Duration::from_secs(30),
            connections_max: world as usize + 1024,
        }
    }
}

/// Serves the store of one job from a thread of its own.
///
/// Dropping it closes all connections at once; [`StoreServer::close`] lets the ranks finish.
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
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct StoreServer {
    address: SocketAddr,
    wake: Arc<OwnedFd>,
    mode: Arc<Mutex<Mode>>,
    /// Where ranks of this host are told the address and the token.
    door: Option<Door>,
    /// The process whose thread it is: a forked child has no such thread.
    pid: u32,
    /// `None` once it was waited for.
    thread: Option<JoinHandle<io::Result<Ranks>>>,
}

impl StoreServer {
    /// Listens at `address`, with port 0 at a free port, and starts to serve.
    ///
    /// # Errors
    /// [`BootstrapError::WorldSize`] when there is no such job, [`BootstrapError::Listen`] when the address is taken or
    /// not of this machine, [`BootstrapError::Serve`] when the process may have no more descriptors or threads.
    pub fn bind(address: SocketAddr, options: StoreOptions) -> Result<Self, BootstrapError> {
        if options.world == 0 || options.world > WORLD_MAX {
            return Err(BootstrapError::WorldSize { world: options.world, world_max: WORLD_MAX });
        }
        let listener = listen(address).map_err(|source| BootstrapError::Listen { address, source })?;
        let address = listener.local_addr().map_err(|source| BootstrapError::Listen { address, source })?;
        let failed = |what| move |source| BootstrapError::Serve { what, source };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(wake.map_err(|errno| failed("make a descriptor")(errno.into()))?);
        let mode = Arc::new(Mutex::new(Mode::Serve));
        let service = Service::new(listener, Arc::clone(&wake), Arc::clone(&mode), options);
        let thread = std::thread::Builder::new().name("store".into()).spawn(|| service.run());
        let thread = Some(thread.map_err(failed("start a thread"))?);
        Ok(Self { address, wake, mode, door: None, pid: std::process::id(), thread })
    }

    /// Listens at the first of `ports` that is free.
    ///
    /// # Errors
    /// [`BootstrapError::NoFreePort`] when none is; otherwise as [`bind`](Self::bind).
    pub fn bind_first(ip: IpAddr, ports: &[u16], options: &StoreOptions) -> Result<Self, BootstrapError> {
        for port in ports {
            match Self::bind(SocketAddr::new(ip, *port), options.clone()) {
                Err(BootstrapError::Listen { source, .. }) if source.kind() == io::ErrorKind::AddrInUse => {}
                outcome => return outcome,
            }
        }
        Err(BootstrapError::NoFreePort { host: ip, ports: ports.to_vec() })
    }

    /// Serves the ranks of this host, who find it by the job's name: see [`StoreClient::connect_by_name`](super::StoreClient::connect_by_name).
    ///
    /// Processes of other users do not find it, and nobody does once all ranks have: the name is then free again.
    ///
    /// # Errors
    /// [`BootstrapError::NameTaken`] when another process holds it; otherwise as [`bind`](Self::bind).
    pub fn bind_by_name(name: &str, options: StoreOptions) -> Result<Self, BootstrapError> {
        let (token, world) = (options.token, options.world);
        let mut server = Self::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), options)?;
        server.door = Some(Door::open(name, server.address, token, world)?);
        Ok(server)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets no rank join any more, waits until those that have joined leave, and ends.
    ///
    /// A client of this process counts: drop it before.
    ///
    /// # Errors
    /// [`BootstrapError::StillJoined`] when ranks had not left at the deadline; their connections are closed all the
    /// same. [`BootstrapError::Serve`] when serving had ended before, with the reason.
    pub fn close(mut self, deadline: Deadline) -> Result<(), BootstrapError> {
        let ranks = self.end(deadline.instant());
        let ranks = ranks.map_err(|source| BootstrapError::Serve { what: "go on", source })?;
        if ranks.count > 0 {
            return Err(BootstrapError::StillJoined { ranks: ranks.into() });
        }
        Ok(())
    }

    /// Ends the thread by then; gives the ranks that had not left.
    fn end(&mut self, by: Instant) -> io::Result<Ranks> {
        self.door = None;
        let Some(thread) = self.thread.take() else { return Ok(Ranks::default()) };
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner) = Mode::End { by };
        // Fails only when it is readable already, and so wakes all the same.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        thread.join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            std::mem::forget(self.thread.take());
            return;
        }
        // What went wrong before is told by `close` alone.
        let _ = self.end(Instant::now());
    }
}

/// A listener whose queue holds a burst: one that is full costs those who come a second each.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
