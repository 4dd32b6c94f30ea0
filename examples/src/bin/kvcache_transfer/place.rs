//! Where the ranks of both sides meet: by addresses of the flags, or by the store of the process that started them all.

use crate::args::Args;
use crate::presets::Request;
use crate::side::handed_down;
use crate::sides::{Rank, Role};
use anyhow::Context;
use examples::processes::JOB_TOKEN;
use rdma_collective::bootstrap::{Join, StoreClient};
use rdma_collective::link::Meet;
use rdma_core::Deadline;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};

/// Where the processes of one command meet: its store's address.
pub const STORE: &str = "RDMA_STORE";

/// How a rank finds its peers.
pub struct Place {
    how: How,
    /// Number of peers.
    peers: usize,
    /// The store of the process that started all ranks.
    store: Option<StoreClient>,
}

enum How {
    /// The rank waits here.
    Wait(TcpListener),
    /// The peers wait there.
    Go(Vec<SocketAddr>),
}

impl Place {
    /// From the flags, or from the store of the process that started both sides.
    ///
    /// # Errors
    ///
    /// An address that is none, or that cannot be listened on.
    pub fn find(args: &Args, request: &Request) -> anyhow::Result<Self> {
        let peers = request.peers.len();
        // The variable means nothing to a side that a person or another program has started.
        let store = std::env::var(STORE).ok().filter(|store| !store.is_empty());
        if let (Some(_), Some(store)) = (handed_down()?.launcher, store) {
            let store =
                store.parse().with_context(|| format!("{STORE} is `{store}`, which is no address"))?;
            return Self::by_store(args, request, store);
        }
        let Some(peer) = &args.peer else {
            let (mut address, number) = (args.listen, request.rank.number);
            address.set_port(port(address, number)?);
            return Ok(Self { how: listen(address)?, peers, store: None });
        };
        let mut addresses =
            peer.to_socket_addrs().with_context(|| format!("--peer {peer} is no HOST:PORT"))?;
        let first = addresses.next().with_context(|| format!("--peer {peer} has no address"))?;
        let of = |peer: &u32| Ok(SocketAddr::new(first.ip(), port(first, *peer)?));
        let how = How::Go(request.peers.iter().map(of).collect::<anyhow::Result<_>>()?);
        Ok(Self { how, peers, store: None })
    }

    fn by_store(args: &Args, request: &Request, address: SocketAddr) -> anyhow::Result<Self> {
        let token = handed_down()?.token.with_context(|| format!("{STORE} is set and {JOB_TOKEN} is not"))?;
        let deadline = Deadline::after(args.timeout());
        let Rank { role, number } = request.rank;
        let [prefill, decode] = args.tp.0.map(|size| size.0);
        let rank = if role == Role::Decode { number } else { decode + number };
        let join = Join { address, token, rank, world: prefill + decode };
        let mut store = StoreClient::connect(join, deadline)?;
        let how = match role {
            Role::Decode => {
                let how = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
                if let How::Wait(listener) = &how {
                    let address = listener.local_addr()?.to_string();
                    store.set(&address_key(number), address.as_bytes(), deadline)?;
                }
                how
            }
            Role::Prefill => {
                let mut addresses = Vec::new();
                for peer in &request.peers {
                    let address = store.get(&address_key(*peer), deadline)?;
                    addresses.push(String::from_utf8_lossy(&address).parse()?);
                }
                How::Go(addresses)
            }
        };
        Ok(Self { how, peers: request.peers.len(), store: Some(store) })
    }

    /// For the library: one for each peer.
    pub fn meets(&self) -> Vec<Meet<'_>> {
        match &self.how {
            How::Wait(listener) => (0..self.peers).map(|_| Meet::Accept(listener)).collect(),
            How::Go(addresses) => addresses.iter().map(|address| Meet::Connect(*address)).collect(),
        }
    }

    /// The address of a peer, unless this rank waits.
    pub fn peer(&self) -> Option<SocketAddr> {
        match &self.how {
            How::Wait(_) => None,
            How::Go(addresses) => addresses.first().copied(),
        }
    }

    /// Whether another rank says what came of this one.
    pub fn is_told(&self, rank: Rank) -> bool {
        self.store.is_some() && rank.number > 0
    }

    /// The parts of all ranks of decode, at rank 0 of a job that one command has started, and that of the rank itself
    /// where it was started by hand. `None` at a rank whose part rank 0 has now.
    ///
    /// # Errors
    ///
    /// A rank that does not tell its part in time.
    pub fn gather<T: Serialize + DeserializeOwned>(
        mut self,
        args: &Args,
        rank: Rank,
        own: T,
    ) -> anyhow::Result<Option<Vec<T>>> {
        let deadline = Deadline::after(args.timeout());
        let Some(store) = &mut self.store else { return Ok(Some(vec![own])) };
        if rank.number > 0 {
            store.set(&part_key(rank.number), &serde_json::to_vec(&own)?, deadline)?;
            return Ok(None);
        }
        let mut all = vec![own];
        for Rank { number, .. } in args.ranks(Role::Decode).skip(1) {
            all.push(serde_json::from_slice(&store.get(&part_key(number), deadline)?)?);
        }
        Ok(Some(all))
    }

    /// The address at which the other side reaches this host, which the software device must answer at.
    pub fn own_address(&self) -> IpAddr {
        let address = match &self.how {
            How::Wait(listener) => listener.local_addr().ok(),
            // Nothing is sent: the system only chooses the interface.
            How::Go(peers) => peers.first().and_then(|peer| {
                let socket = UdpSocket::bind(if peer.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" });
                socket.and_then(|socket| socket.connect(peer).and_then(|()| socket.local_addr())).ok()
            }),
        };
        let ip = address.map(|address| address.ip()).filter(|ip| !ip.is_unspecified());
        ip.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }
}

/// Key of the store under which a rank of decode gives its address.
fn address_key(rank: u32) -> String {
    format!("address of decode {rank}")
}

/// Key of the store under which a rank of decode says what came of its part.
fn part_key(rank: u32) -> String {
    format!("part of decode {rank}")
}

/// The port of a rank, when that of rank 0 is known.
fn port(first: SocketAddr, rank: u32) -> anyhow::Result<u16> {
    let port = u16::try_from(rank).ok().and_then(|rank| first.port().checked_add(rank));
    port.with_context(|| format!("rank {rank} has no port: choose a lower one than {}", first.port()))
}

fn listen(address: SocketAddr) -> anyhow::Result<How> {
    let listener = TcpListener::bind(address);
    Ok(How::Wait(
        listener.with_context(|| format!("cannot listen on {address}: choose another with --listen"))?,
    ))
}
