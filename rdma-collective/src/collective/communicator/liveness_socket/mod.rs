//! Liveness sockets: idle TCP connections between ring neighbours on different hosts.
//!
//! No data goes over such a connection. The kernel closes it when the process at its other end dies, so a neighbour
//! learns of the death at once, and not only after the peer timeout. Processes on one host need none: they watch each
//! other through the kernel. Where no connection can be made, for example because of a firewall, the peer timeout
//! remains.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::Builder;
use std::time::Duration;

use rdma_core::Deadline;

use crate::bootstrap::JobToken;
use crate::engine::{Engine, LaneId};
use crate::link::Blob;
use crate::link::HandshakeError;
use crate::link::handshake::{Meet, meet};

/// How long a rank tries to connect: 5 s. A firewall may drop the packets without an answer, and the communicator works
/// without these connections.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// The socket to which the previous rank connects; `None` if the system refused one.
pub(super) struct Listener(Option<TcpListener>);

/// A neighbour, and the lane whose end its death brings.
pub(super) struct WatchedPeer<'a> {
    pub(super) rank: u32,
    pub(super) lane: LaneId,
    pub(super) blob: &'a Blob,
}

impl Listener {
    /// Listens on the address of the RDMA device, or else on the address from which the store was reached.
    pub(super) fn open(engine: &Engine, of_store: Option<SocketAddr>) -> Self {
        let of_device = engine.gid().entry.gid.ipv4_mapped().map(Into::into);
        let of_store = of_store.map(|address| address.ip());
        let listen = |ip| TcpListener::bind(SocketAddr::new(ip, 0)).ok();
        Self(of_device.into_iter().chain(of_store).find_map(listen))
    }

    /// The address for the previous rank; empty if there is none.
    pub(super) fn address(&self) -> Vec<u8> {
        let address = self.0.as_ref().and_then(|listener| listener.local_addr().ok());
        address.map_or_else(Vec::new, |address| address.to_string().into_bytes())
    }

    /// Connects to the next rank and accepts the previous one, as far as they are on other hosts. `neighbours` are the
    /// next and the previous rank of `rank`, or the one rank that is both: of two ranks, rank 0 connects.
    pub(super) fn connect(
        self,
        engine: &Engine,
        token: &JobToken,
        rank: u32,
        neighbours: &[WatchedPeer<'_>],
        deadline: Deadline,
    ) {
        let own = engine.lock().process();
        let deadline = deadline.min(Deadline::after(CONNECT_WITHIN));
        let (next, previous) = match neighbours {
            [next, previous] => (Some(next), Some(previous)),
            [other] if rank == 0 => (Some(other), None),
            [other] => (None, Some(other)),
            _ => (None, None),
        };
        let is_elsewhere = |peer: &&WatchedPeer<'_>| peer.blob.process.is_elsewhere(&own);
        let to_next = next.filter(is_elsewhere).and_then(|next| {
            let address = std::str::from_utf8(&next.blob.payload).ok().and_then(|text| text.parse().ok())?;
            Some((next, Meet::Connect(address)))
        });
        let to_previous = previous.filter(is_elsewhere).zip(self.0.as_ref());
        // Every rank accepts and connects at the same time. If each accepted first, each would wait for the rank before
        // it, all around the ring.
        std::thread::scope(|scope| {
            let spawned = to_previous.and_then(|(previous, listener)| {
                let accept =
                    move || keep(engine, previous, establish(&Meet::Accept(listener), token, deadline));
                let spawned = Builder::new().name("rdma-hold".into()).spawn_scoped(scope, accept);
                spawned.err().map(|error| (previous.rank, error))
            });
            if let Some((rank, error)) = spawned {
                crate::log::warn!(
                    rank, %error,
                    "no thread to accept the neighbour's liveness connection; \
                     only the peer timeout finds its death"
                );
            }
            if let Some((next, connect)) = to_next {
                keep(engine, next, establish(&connect, token, deadline));
            }
        });
    }
}

/// A connection, and the error for which this side cannot rely on it, if there is one.
type Connection = (TcpStream, Option<HandshakeError>);

/// Connects or accepts, and exchanges readiness.
fn establish(how: &Meet<'_>, token: &JobToken, deadline: Deadline) -> Result<Connection, HandshakeError> {
    let mut met = meet(how, token, deadline)?;
    met.say_ready()?;
    let heard = met.hear_ready();
    Ok((met.into_stream(), heard.err()))
}

/// Gives the connection to the engine, which keeps it as long as the lane.
fn keep(engine: &Engine, of: &WatchedPeer<'_>, connection: Result<Connection, HandshakeError>) {
    let WatchedPeer { rank, lane, .. } = *of;
    let error = match connection {
        Ok((stream, None)) => return engine.lock().watch_connection(lane, stream.into()),
        // The neighbour may have read that this side is ready, and then it takes the end of the connection for the
        // end of this process. So the connection must stay open, although this side does not watch it.
        Ok((stream, Some(error))) => {
            engine.lock().hold_connection(lane, stream.into());
            error
        }
        Err(error) => error,
    };
    crate::log::warn!(
        rank, %error,
        "no liveness connection to a neighbour on another host; only the peer timeout finds its death"
    );
}

#[cfg(test)]
mod tests;
