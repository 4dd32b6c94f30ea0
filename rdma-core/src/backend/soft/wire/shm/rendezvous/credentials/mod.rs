//! The identity of the process at the other end of a connection: its user, and a pidfd that tells when it ends.
//!
//! Mapped memory is exact among processes that run this library as one user. Everybody else gets TCP, so both ends
//! check each other here.

#![expect(unsafe_code, reason = "asks a socket for its peer's user and pidfd")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::UnmappedReason;

/// Socket option of Linux 6.5, in no header that can be relied on. It names the process that connected even if its
/// number was given to another one since.
const SO_PEERPIDFD: i32 = 77;

/// The checks that this process makes of a peer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Credentials {
    /// The user that both processes must be.
    pub(super) uid: u32,
    /// The user number that stands for every user outside this user namespace. Two different users may both read as
    /// it, so it identifies nobody.
    pub(super) overflow: u32,
    pub(super) peer: fn(BorrowedFd<'_>) -> io::Result<libc::ucred>,
    pub(super) pidfd: fn(BorrowedFd<'_>) -> io::Result<OwnedFd>,
}

impl Credentials {
    /// The checks of this process, with its own user.
    pub(super) fn new() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        Self { uid, overflow: overflow(), peer: peer_of, pidfd: pidfd_of }
    }

    /// Returns a pidfd of the process at the other end, if it runs as the same user and each process sees the other's
    /// process number.
    ///
    /// # Errors
    ///
    /// [`UnmappedReason::OtherUser`], [`UnmappedReason::OverflowUser`], [`UnmappedReason::OtherPidNamespace`], or
    /// [`UnmappedReason::NoPidfd`] when the process cannot be watched.
    pub(super) fn check(&self, socket: BorrowedFd<'_>) -> Result<OwnedFd, UnmappedReason> {
        let libc::ucred { pid, uid, .. } = (self.peer)(socket)?;
        if uid != self.uid {
            return Err(UnmappedReason::OtherUser { own: self.uid, peer: uid });
        }
        if uid == self.overflow {
            return Err(UnmappedReason::OverflowUser { uid });
        }
        // The kernel gives a pidfd even then. But the process belongs to another container, and this process is meant
        // to be kept apart from it.
        if pid == 0 {
            return Err(UnmappedReason::OtherPidNamespace);
        }
        (self.pidfd)(socket).map_err(UnmappedReason::NoPidfd)
    }
}

/// Returns the user number that the kernel shows for users outside this user namespace.
fn overflow() -> u32 {
    let said = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    // 65534 is the kernel's default (/proc/sys/kernel/overflowuid).
    said.and_then(|said| said.trim().parse().ok()).unwrap_or(65534)
}

/// Returns user and process number of the other end, as of its connect or listen call. The process number is 0 if
/// this pid namespace does not contain the process.
fn peer_of(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let len = size_of::<libc::ucred>();
    // SAFETY: `peer` is a `ucred` of `len` bytes, for which any numbers are valid, so the kernel may write it.
    unsafe { option(socket, libc::SO_PEERCRED, (&raw mut peer).cast(), len) }?;
    Ok(peer)
}

/// Returns a pidfd of the process at the other end; by SO_PEERPIDFD, or by its number on older kernels.
fn pidfd_of(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut fd: RawFd = -1;
    // SAFETY: `fd` is an integer of that size, for which any number is valid, so the kernel may write it.
    let got = unsafe { option(socket, SO_PEERPIDFD, (&raw mut fd).cast(), size_of::<RawFd>()) };
    if got.is_ok() && fd >= 0 {
        // SAFETY: the kernel installed this descriptor just now for this call, so nothing else owns it.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    // The number may belong to another process by now, if the peer has ended; older kernels offer nothing better.
    let pid = Pid::from_raw(peer_of(socket)?.pid).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Reads a socket option of `len` bytes.
///
/// # Safety
///
/// `value` is valid for writes of `len` bytes.
unsafe fn option(socket: BorrowedFd<'_>, name: i32, value: *mut libc::c_void, len: usize) -> io::Result<()> {
    let mut len = len as libc::socklen_t;
    // SAFETY: `value` has `len` bytes by this function's contract, and the kernel is given that length, so it writes
    // no more.
    let got = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, value, &mut len) };
    if got == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether the process of a pidfd has ended.
pub(crate) fn has_ended(pidfd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1))
}

#[cfg(test)]
mod tests;
