//! Who is at the other end of a connection: its user, and a descriptor that tells when its process ends.

#![expect(unsafe_code, reason = "asks a socket for its peer's user and pidfd")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::UnmappedReason;

/// Linux 6.5; in no header that we may count on.
const SO_PEERPIDFD: i32 = 77;

/// What this side asks of whoever is at the other end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Credentials {
    /// The user that both have to be.
    pub(super) uid: u32,
    /// What every user reads as that this user namespace does not have: nobody in particular.
    pub(super) overflow: u32,
    pub(super) peer: fn(BorrowedFd<'_>) -> io::Result<libc::ucred>,
    pub(super) pidfd: fn(BorrowedFd<'_>) -> io::Result<OwnedFd>,
}

impl Credentials {
    pub(super) fn new() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        Self { uid, overflow: overflow(), peer: peer_of, pidfd: pidfd_of }
    }

    /// The process at the other end, when it runs as the same user and each sees the other's process number.
    ///
    /// # Errors
    ///
    /// [`Reason::OtherUser`], [`Reason::NobodyInParticular`], [`Reason::OtherProcesses`], or [`Reason::NoPidfd`] when it
    /// cannot be watched.
    pub(super) fn check(&self, socket: BorrowedFd<'_>) -> Result<OwnedFd, UnmappedReason> {
        let libc::ucred { pid, uid, .. } = (self.peer)(socket)?;
        if uid != self.uid {
            return Err(UnmappedReason::OtherUser { own: self.uid, peer: uid });
        }
        if uid == self.overflow {
            return Err(UnmappedReason::OverflowUser { uid });
        }
        // Its end could be told all the same, but it is of another container, whose processes this one is kept apart from.
        if pid == 0 {
            return Err(UnmappedReason::OtherPidNamespace);
        }
        (self.pidfd)(socket).map_err(UnmappedReason::NoPidfd)
    }
}

/// The user that the kernel names in place of those that a user namespace does not have.
fn overflow() -> u32 {
    let said = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    // What it is unless somebody has changed it.
    said.and_then(|said| said.trim().parse().ok()).unwrap_or(65534)
}

/// The process at the other end when it connected, or began to listen; number 0 when it cannot be seen from here.
fn peer_of(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let len = size_of::<libc::ucred>();
    // SAFETY: the place is a `ucred`, and any numbers make one.
    unsafe { option(socket, libc::SO_PEERCRED, (&raw mut peer).cast(), len) }?;
    Ok(peer)
}

fn pidfd_of(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut fd: RawFd = -1;
    // SAFETY: the place is a descriptor, and any number makes one.
    let got = unsafe { option(socket, SO_PEERPIDFD, (&raw mut fd).cast(), size_of::<RawFd>()) };
    if got.is_ok() && fd >= 0 {
        // SAFETY: a new descriptor, which nobody else knows of.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    let pid = Pid::from_raw(peer_of(socket)?.pid).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Has the kernel write an option of `len` bytes.
///
/// # Safety
///
/// `place` is valid for writes of `len` bytes.
unsafe fn option(socket: BorrowedFd<'_>, name: i32, place: *mut libc::c_void, len: usize) -> io::Result<()> {
    let mut len = len as libc::socklen_t;
    // SAFETY: by the caller's promise the place has as many bytes; the kernel writes no more.
    let got = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, place, &mut len) };
    if got == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether the process of a pidfd has ended.
pub(crate) fn has_ended(pidfd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn this_process_is_the_same_user_and_alive() {
        let (here, _there) = UnixStream::pair().unwrap();
        let pidfd = Credentials::new().check(here.as_fd()).unwrap();
        assert!(!has_ended(pidfd.as_fd()));
    }

    #[test]
    fn a_child_that_ended_is_seen_to_have() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        child.wait().unwrap();
        assert!(has_ended(pidfd.as_fd()));
    }

    #[test]
    fn a_user_that_stands_for_others_is_nobody() {
        let (here, _there) = UnixStream::pair().unwrap();
        let own = Credentials::new();
        let overflow = own.overflow;
        let theirs = Credentials { peer: |_| Ok(libc::ucred { pid: 1, uid: 7, gid: 0 }), ..own };
        // It reads as the same one itself.
        let refused = Credentials { uid: 7, overflow: 7, ..theirs }.check(here.as_fd()).unwrap_err();
        assert!(matches!(refused, UnmappedReason::OverflowUser { uid: 7 }), "{refused}");
        assert!(Credentials { uid: 7, ..theirs }.check(here.as_fd()).is_ok());
        let said = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap();
        assert_eq!(said.trim(), overflow.to_string());
    }

    #[test]
    fn a_process_whose_number_is_not_seen_is_refused_though_its_end_could_be_told() {
        let (here, _there) = UnixStream::pair().unwrap();
        let own = Credentials {
            uid: 7,
            peer: |_| Ok(libc::ucred { pid: 0, uid: 7, gid: 0 }),
            ..Credentials::new()
        };
        assert!((own.pidfd)(here.as_fd()).is_ok());
        let refused = own.check(here.as_fd()).unwrap_err();
        assert!(
            matches!(refused, UnmappedReason::OtherPidNamespace)
                && refused.to_string().contains("process numbers")
        );
    }
}
