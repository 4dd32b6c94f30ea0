//! Connections between neighbours on different hosts, over which nothing is said: one that closes tells that the
//! process at its other end is gone, long before its silence does.
//!
//! Processes of one host watch each other by the kernel. Where a connection cannot be had, silence is all there is.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::Builder;
use std::time::Duration;

use rdma_core::Deadline;

use crate::bootstrap::JobToken;
use crate::engine::{Engine, LaneId};
use crate::link::Blob;
use crate::link::HandshakeError;
use crate::link::handshake::{Meet, meet};

/// A firewall between may swallow what is said: nobody waits for that longer.
pub(super) const WITHIN: Duration = Duration::from_secs(5);

/// Where the rank before this one connects to.
pub(super) struct Door(Option<TcpListener>);

/// A neighbour, and the lane to it.
pub(super) struct Held<'a> {
    pub(super) rank: u32,
    pub(super) lane: LaneId,
    pub(super) blob: &'a Blob,
}

impl Door {
    /// Listens where lanes come from, or else where the store is reached from.
    pub(super) fn open(engine: &Engine, of_store: Option<SocketAddr>) -> Self {
        let of_device = engine.gid().entry.gid.ipv4_mapped().map(Into::into);
        let of_store = of_store.map(|address| address.ip());
        let listen = |ip| TcpListener::bind(SocketAddr::new(ip, 0)).ok();
        Self(of_device.into_iter().chain(of_store).find_map(listen))
    }

    /// What the rank before this one is told.
    pub(super) fn address(&self) -> Vec<u8> {
        let address = self.0.as_ref().and_then(|listener| listener.local_addr().ok());
        address.map_or_else(Vec::new, |address| address.to_string().into_bytes())
    }

    /// Connects to the rank after this one and lets the rank before it in, as far as they are on other hosts.
    pub(super) fn hold(
        self,
        engine: &Engine,
        token: &JobToken,
        [next, previous]: [Held<'_>; 2],
        deadline: Deadline,
    ) {
        let own = engine.lock().process();
        let previous_rank = previous.rank;
        let deadline = deadline.min(Deadline::after(WITHIN));
        let address = std::str::from_utf8(&next.blob.payload).ok().and_then(|text| text.parse().ok());
        let to_next = address.filter(|_| next.blob.process.is_elsewhere(&own)).map(Meet::Connect);
        let to_previous = self.0.as_ref().filter(|_| previous.blob.process.is_elsewhere(&own));
        // All ranks connect and are connected to at once: one after the other, each would wait for the next.
        std::thread::scope(|scope| {
            let let_in = to_previous.and_then(|listener| {
                let accept = move || keep(engine, &previous, hold(&Meet::Accept(listener), token, deadline));
                Builder::new().name("rdma-hold".into()).spawn_scoped(scope, accept).err()
            });
            if let Some(error) = let_in {
                let rank = previous_rank;
                tracing::warn!(rank, %error, "no thread to wait for a neighbour's connection");
            }
            if let Some(connect) = to_next {
                keep(engine, &next, hold(&connect, token, deadline));
            }
        });
    }
}

/// A connection, and why this side cannot rely on it, if it cannot.
type Connection = (TcpStream, Option<HandshakeError>);

fn hold(how: &Meet<'_>, token: &JobToken, deadline: Deadline) -> Result<Connection, HandshakeError> {
    let mut met = meet(how, token, deadline)?;
    met.say_ready()?;
    let heard = met.hear_ready();
    Ok((met.into_stream(), heard.err()))
}

fn keep(engine: &Engine, of: &Held<'_>, connection: Result<Connection, HandshakeError>) {
    let Held { rank, lane, .. } = *of;
    let error = match connection {
        Ok((stream, None)) => return engine.lock().watch_connection(lane, stream.into()),
        // The neighbour may have heard that this side is ready: to it the connection ends when this process does.
        Ok((stream, Some(error))) => {
            engine.lock().hold_connection(lane, stream.into());
            error
        }
        Err(error) => error,
    };
    tracing::warn!(rank, %error, "only by its silence can a neighbour on another host be found lost");
}

#[cfg(test)]
mod tests;
