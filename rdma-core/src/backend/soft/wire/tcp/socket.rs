//! Nonblocking TCP sockets, and the two calls that move bytes between a socket and raw memory.

#![expect(unsafe_code, reason = "hands raw memory to recvmsg and sendmsg")]

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use socket2::{Domain, SockRef, Socket, Type};

use super::link::LinkError;

/// Connections that the kernel completes before they are accepted.
const BACKLOG: i32 = 1024;

/// Creates a nonblocking TCP socket that children do not inherit.
fn stream() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::STREAM.nonblocking().cloexec(), None)
}

/// Listens at `address`, and returns the port.
pub(super) fn listen(address: SocketAddrV4) -> io::Result<(OwnedFd, u16)> {
    let socket = stream()?;
    // Otherwise a restarted process could not take its port again while old connections are in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let bound = socket.local_addr()?.as_socket_ipv4();
    let port = bound.ok_or(io::ErrorKind::AddrNotAvailable)?.port();
    Ok((socket.into(), port))
}

/// Begins to connect. Sending and receiving tell when the connection is made, or why it failed.
pub(super) fn connect(address: SocketAddrV4) -> io::Result<OwnedFd> {
    let socket = stream()?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
        _ => {}
    }
    let fd = socket.into();
    no_delay(&fd)?;
    Ok(fd)
}

/// Turns Nagle's algorithm off, because each frame is a message that must not wait for the next. Buffer sizes are
/// left to the kernel, which grows them with the path beyond what `SO_SNDBUF` and `SO_RCVBUF` may ask for.
pub(super) fn no_delay(fd: &impl AsFd) -> io::Result<()> {
    rustix::net::sockopt::set_tcp_nodelay(fd, true).map_err(Into::into)
}

/// Returns how many of `bytes` fill whole TCP segments of the connection.
pub(super) fn whole_segments(fd: BorrowedFd<'_>, bytes: usize) -> usize {
    let segment = SockRef::from(&fd).tcp_mss().map_or(1, |mss| mss as usize);
    bytes - bytes % segment.max(1)
}

/// Receives into `direct` first, and then into `staging`. `None` when nothing is there; epoll reports what comes.
///
/// # Errors
///
/// [`LinkError::Closed`] at the end of the stream, or the error of the system.
///
/// # Safety
///
/// `direct` is valid for writes for the whole call, and no reference to it exists.
pub(super) unsafe fn receive(
    fd: BorrowedFd<'_>,
    direct: libc::iovec,
    staging: &mut [u8],
) -> Result<Option<usize>, LinkError> {
    let tail = libc::iovec { iov_base: staging.as_mut_ptr().cast(), iov_len: staging.len() };
    let both = [direct, tail];
    let vectors = if direct.iov_len == 0 { &both[1..] } else { &both[..] };
    // SAFETY: both ranges are valid for writes, `direct` by the caller's promise and `staging` because it is a slice.
    // `vectors` outlives the call, and its length (1 or 2) fits.
    let n = unsafe { libc::readv(fd.as_raw_fd(), vectors.as_ptr(), vectors.len() as i32) };
    if n == 0 { Err(LinkError::Closed) } else { Ok(moved(n)?) }
}

/// Receives into a buffer of this process, as [`receive`] does.
pub(super) fn receive_into(fd: BorrowedFd<'_>, into: &mut [u8]) -> Result<Option<usize>, LinkError> {
    let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    // SAFETY: the direct range is empty, so the call writes to `into` alone.
    unsafe { receive(fd, none, into) }
}

/// Sends the ranges one after the other, as much as the socket takes, and returns how many bytes.
///
/// # Safety
///
/// Every range is valid for reads for the whole call. A device or another process may write it at the same time: then
/// the bytes sent are torn, and nothing worse.
pub(super) unsafe fn send(fd: BorrowedFd<'_>, vectors: &[libc::iovec]) -> io::Result<usize> {
    // SAFETY: `msghdr` consists of integers and pointers, for which zeros are valid, so this is a value of it.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_ptr().cast_mut();
    message.msg_iovlen = vectors.len() as _;
    // SAFETY: the ranges are valid by the caller's promise. sendmsg only reads the vectors, so the cast to a mutable
    // pointer does no harm.
    let sent = moved(unsafe { libc::sendmsg(fd.as_raw_fd(), &message, libc::MSG_NOSIGNAL) })?;
    Ok(sent.unwrap_or(0))
}

/// Interprets the result of a system call on a nonblocking socket; `None` when nothing moved.
fn moved(n: isize) -> io::Result<Option<usize>> {
    if let Ok(n) = usize::try_from(n) {
        return Ok(Some(n));
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
        // The connection is still being made.
        io::ErrorKind::NotConnected => Ok(None),
        _ => Err(error),
    }
}
