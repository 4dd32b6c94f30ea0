//! The address at which a device listens: an abstract Unix address made of its GID. Abstract addresses belong to the
//! network namespace, so processes of other namespaces do not meet.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::UnmappedReason;
use crate::Gid;

/// Connections that wait to be accepted; the kernel's own limit (net.core.somaxconn) may be lower.
const BACKLOG: i32 = 4096;

/// Returns the abstract address of the device with `gid`.
fn address(gid: Gid) -> Result<SocketAddrUnix, Errno> {
    let name: String = gid.0.iter().map(|byte| format!("{byte:02x}")).collect();
    SocketAddrUnix::new_abstract_name(format!("rdma-core/{name}").as_bytes())
}

/// Creates a socket that keeps packets whole (SEQPACKET), so that a frame and its descriptors arrive together.
fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Listens for requesters of the device with `gid`.
pub(super) fn listen(gid: Gid) -> std::io::Result<OwnedFd> {
    let socket = socket()?;
    rustix::net::bind(&socket, &address(gid)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Connects to the device with `gid`, at once or not at all: a Unix socket never needs to wait, unless the listener
/// is full.
///
/// # Errors
///
/// [`UnmappedReason::NoNeighbour`] when nothing listens there, [`UnmappedReason::Busy`], or the system's error.
pub(super) fn connect(gid: Gid) -> Result<OwnedFd, UnmappedReason> {
    let connected = socket().and_then(|socket| {
        rustix::net::connect(&socket, &address(gid)?)?;
        Ok(socket)
    });
    connected.map_err(|error| match error {
        Errno::CONNREFUSED => UnmappedReason::NoNeighbour,
        Errno::WOULDBLOCK => UnmappedReason::Busy,
        Errno::MFILE | Errno::NFILE => UnmappedReason::OutOfDescriptors,
        other => UnmappedReason::Io(other.into()),
    })
}
