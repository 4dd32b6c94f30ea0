//! The part that both sides do alike: the device, the pool, and where they meet.

use crate::args::{Args, Role};
use crate::content::Content;
use crate::pool::{self, Owners};
use crate::presets::Request;
use crate::report::Device;
use crate::requests::Requests;
use anyhow::{Context, bail, ensure};
use examples::columns::header::Refused;
use examples::output::complain;
use examples::processes::{self, HandedDown, JOB_TOKEN};
use rdma_collective::bootstrap::{JobToken, Join, StoreClient};
use rdma_collective::engine::Engine;
use rdma_collective::env::{NcclOptions, SelectedDevice, Variables};
use rdma_collective::kv::{Pool, PoolUse};
use rdma_collective::link::Meet;
use rdma_core::fault::FaultPlan;
use rdma_core::{Deadline, PeerAccess, SoftOptions};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};

/// Where the processes of one command meet: its store's address.
pub const STORE: &str = "RDMA_STORE";
/// Key of the store under which decode gives its address.
const ADDRESS_KEY: &str = "address of decode";

/// A side, ready to meet the other.
pub struct Side {
    /// Moves everything along.
    pub engine: Engine,
    /// This side's blocks, filled.
    pub pool: Pool,
    /// The job's token.
    pub token: JobToken,
    /// Faults to inject at this side's device.
    pub faults: Option<FaultPlan>,
    selected: SelectedDevice,
}

/// How this side finds the other.
pub enum Place {
    /// This side waits here.
    Wait(TcpListener),
    /// The other one waits there.
    Go(SocketAddr),
}

impl Place {
    /// From the flags, or from the store of the process that started both sides.
    ///
    /// # Errors
    ///
    /// An address that is none, or that cannot be listened on.
    pub fn find(args: &Args, role: Role) -> anyhow::Result<Self> {
        // The variable means nothing to a side that a person or another program has started.
        let store = std::env::var(STORE).ok().filter(|store| !store.is_empty());
        if let (Some(_), Some(store)) = (handed_down()?.launcher, store) {
            let store =
                store.parse().with_context(|| format!("{STORE} is `{store}`, which is no address"))?;
            return Self::by_store(args, role, store);
        }
        match &args.peer {
            Some(peer) => {
                let mut addresses =
                    peer.to_socket_addrs().with_context(|| format!("--peer {peer} is no HOST:PORT"))?;
                Ok(Self::Go(addresses.next().with_context(|| format!("--peer {peer} has no address"))?))
            }
            None => listen(args.listen),
        }
    }

    fn by_store(args: &Args, role: Role, address: SocketAddr) -> anyhow::Result<Self> {
        let token = handed_down()?.token.with_context(|| format!("{STORE} is set and {JOB_TOKEN} is not"))?;
        let deadline = Deadline::after(args.timeout());
        let join = Join { address, token, rank: role as u32, world: 2 };
        let mut store = StoreClient::connect(join, deadline)?;
        match role {
            Role::Decode => {
                let place = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
                if let Self::Wait(listener) = &place {
                    store.set(ADDRESS_KEY, listener.local_addr()?.to_string().as_bytes(), deadline)?;
                }
                Ok(place)
            }
            Role::Prefill => {
                let address = store.get(ADDRESS_KEY, deadline)?;
                Ok(Self::Go(String::from_utf8_lossy(&address).parse()?))
            }
        }
    }

    /// For the library.
    pub fn meet(&self) -> Meet<'_> {
        match self {
            Self::Wait(listener) => Meet::Accept(listener),
            Self::Go(address) => Meet::Connect(*address),
        }
    }

    /// The address at which the other side reaches this host, which the software device must answer at.
    fn own_address(&self) -> IpAddr {
        let address = match self {
            Self::Wait(listener) => listener.local_addr().map(|address| address.ip()),
            // Nothing is sent: the system only chooses the interface.
            Self::Go(peer) => UdpSocket::bind(if peer.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" })
                .and_then(|socket| socket.connect(peer).and_then(|()| socket.local_addr()))
                .map(|address| address.ip()),
        };
        address.ok().filter(|address| !address.is_unspecified()).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }
}

fn listen(address: SocketAddr) -> anyhow::Result<Place> {
    let listener = TcpListener::bind(address);
    Ok(Place::Wait(
        listener.with_context(|| format!("cannot listen on {address}: choose another with --listen"))?,
    ))
}

/// The token of a side that was given none: the side that waits draws it, and prints the line that sets it elsewhere.
fn token_without_one(place: &Place, role: Role) -> anyhow::Result<JobToken> {
    if let Place::Go(peer) = place {
        bail!(
            "{JOB_TOKEN} is not set: set it by the line that the side at {peer} has printed, or on both sides to 32 \
             hexadecimal digits of your own (openssl rand -hex 16)"
        );
    }
    let token = JobToken::random()?;
    complain(format_args!(
        "{}: {JOB_TOKEN} is not set, so this side drew a token; before the other side is started, set it there: export \
         {JOB_TOKEN}={}",
        role.name(),
        token.to_hex()
    ));
    Ok(token)
}

fn handed_down() -> anyhow::Result<HandedDown> {
    Ok(HandedDown::find(|name| std::env::var(name).ok())?)
}

impl Side {
    /// Opens the device, and allocates and fills the pool.
    ///
    /// # Errors
    ///
    /// Whatever of that fails.
    pub fn open(args: &Args, request: &Request, place: &Place, role: Role) -> anyhow::Result<Self> {
        let HandedDown { token, launcher } = handed_down()?;
        let token = token.map_or_else(|| token_without_one(place, role), Ok)?;
        if let Some(launcher) = launcher {
            processes::end_with(launcher)?;
        }
        let faults = args.fault.filter(|_| role == Role::Decode).map(|fault| fault.plan());
        let nccl = NcclOptions::read(&Variables::of_process())?;
        let (address, wire) = (place.own_address(), args.wire.into());
        let soft = SoftOptions { address, wire, faults: faults.clone(), ..SoftOptions::default() };
        let selected = nccl.select(&args.device, soft, None)?;
        args.wire.suits(&selected)?;
        let name = selected.context.name();
        ensure!(
            faults.is_none() || selected.context.is_soft(),
            "--fault is for the software device, and {name} is not: add --device soft"
        );
        let engine = Engine::new(&selected.context, selected.engine_options(&nccl))?;
        let source = if args.pull { PoolUse::SourceToPull } else { PoolUse::Source };
        let (purpose, owners) = match role {
            Role::Prefill if args.many() => {
                (source, Owners::new(request, Requests::new(args, request).sources())?)
            }
            Role::Prefill => (source, Owners::new(request, &source_ids(args, request))?),
            Role::Decode => (PoolUse::Destination, Owners::none(request)),
        };
        let pool = Pool::allocate(&engine, &request.layout, purpose)?;
        pool::fill(&pool, &owners, &Content::new(args.seed))?;
        Ok(Self { engine, pool, token, faults, selected })
    }

    /// Where this side runs, once it is known how it reaches the other.
    pub fn device(&self, access: PeerAccess) -> Device {
        let gid = &self.selected.gid;
        let wire = match access {
            PeerAccess::Rdma => format!("{} MTU {}", gid.kind, self.selected.port.active_mtu),
            PeerAccess::Stream => "tcp".to_owned(),
            other => other.to_string(),
        };
        Device {
            name: self.selected.context.name().to_owned(),
            wire,
            gid: format!("{} {}", gid.index, gid.gid),
            refused: Refused::all(&self.selected.refused),
        }
    }
}

/// The blocks of prefill's pool that hold the request, in its order.
pub fn source_ids(args: &Args, request: &Request) -> Vec<u32> {
    crate::content::shuffled(args.seed, request.pool_blocks(), request.blocks)
}

/// The blocks of decode's pool that it is to come to, in its order.
pub fn destination_ids(args: &Args, request: &Request) -> Vec<u32> {
    crate::content::shuffled(!args.seed, request.pool_blocks(), request.blocks)
}
