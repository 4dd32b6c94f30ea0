//! Addresses: from a host's name to the address at which rank 0 listens and to which the others connect.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs, UdpSocket};
use std::sync::mpsc;
use std::time::Duration;

use rdma_core::Deadline;

use super::Endpoint;
use crate::bootstrap::BootstrapError;

/// The pause between two look-ups of a name. The names of pods appear only when the pods do, so they are tried again.
const PAUSE: Duration = Duration::from_millis(200);

/// Resolves a host's name, IPv4 before IPv6. An unknown name is tried again until the deadline.
pub(super) fn resolve(endpoint: &Endpoint, deadline: Deadline) -> Result<IpAddr, BootstrapError> {
    if let Ok(ip) = endpoint.host.parse() {
        return Ok(ip);
    }
    let host = &endpoint.host;
    loop {
        let reason = match look_up(host, deadline) {
            Ok(ip) => return Ok(ip),
            Err(reason) => reason,
        };
        let pausing = PAUSE.min(deadline.remaining());
        if pausing.is_zero() {
            return Err(BootstrapError::UnknownHost { host: host.clone(), reason });
        }
        std::thread::sleep(pausing);
    }
}

/// Looks a name up on a thread of its own: the system's resolver may take longer than the deadline, and cannot be
/// interrupted.
fn look_up(host: &str, deadline: Deadline) -> Result<IpAddr, String> {
    let (sender, receiver) = mpsc::channel();
    let name = host.to_owned();
    let look = move || {
        let outcome = (name.as_str(), 0).to_socket_addrs().map_err(|error| error.to_string());
        // Fails only after the deadline, when nobody waits for the answer any more.
        let _ = sender
            .send(outcome.map(|addresses| addresses.map(|address| address.ip()).min_by_key(IpAddr::is_ipv6)));
    };
    std::thread::Builder::new().name("resolve".into()).spawn(look).map_err(|error| error.to_string())?;
    match receiver.recv_timeout(deadline.remaining()) {
        Ok(Ok(Some(ip))) => Ok(ip),
        Ok(Ok(None)) => Err("the name is known, without one".to_owned()),
        Ok(Err(reason)) => Err(reason),
        Err(_) => Err("the system's resolver did not answer".to_owned()),
    }
}

/// The address at which rank 0 listens, if it was given the name `host`, which resolves to `ip` on its own host.
///
/// A name may resolve to a loopback address on its own host, and to another address on all other hosts (Debian does so
/// with the host's own name; the first pod of a job may be given `localhost`). Rank 0 then listens on every interface,
/// unless all ranks are known to be on one host. A loopback address that is written as an address is used as it is.
pub(super) fn to_listen(host: &str, ip: IpAddr, several_hosts: Option<bool>) -> IpAddr {
    let meant = match several_hosts {
        Some(several) => !several && (host == "localhost" || host.parse::<IpAddr>().is_ok()),
        None => host.parse::<IpAddr>().is_ok(),
    };
    if !ip.is_loopback() || meant { ip } else { any(ip) }
}

/// The address of every interface, of the same family as `like`.
pub(super) fn any(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// The address from which this host reaches others; the loopback address if there is no route.
pub(super) fn of_this_host(like: IpAddr) -> IpAddr {
    // Connecting a datagram socket sends nothing; the kernel only looks for a route. The targets are addresses that are
    // reserved for documentation.
    let far: IpAddr = match like {
        IpAddr::V4(_) => Ipv4Addr::new(198, 51, 100, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    let look = || {
        let socket = UdpSocket::bind((any(like), 0))?;
        socket.connect((far, 9))?;
        socket.local_addr()
    };
    look().map_or(Ipv4Addr::LOCALHOST.into(), |address| address.ip())
}

#[cfg(test)]
mod tests;
