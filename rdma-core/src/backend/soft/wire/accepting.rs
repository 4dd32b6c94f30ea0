//! Calls on the sockets of both wires that listen: the next connection, and whether one is over.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SocketFlags;

/// Accepts the next connection; `None` when there is none now.
pub(super) fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    match rustix::net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::WOULDBLOCK | Errno::INTR | Errno::CONNABORTED) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether the connection is over in both directions.
pub(super) fn has_hung_up(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // The kernel reports these two whatever is asked for.
    let over = PollFlags::HUP | PollFlags::ERR;
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default()))?;
    Ok(fds[0].revents().intersects(over))
}
