//! A descriptor that becomes readable when something is to be told.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// An eventfd; clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct Channel {
    fd: Arc<OwnedFd>,
}

impl Channel {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { fd: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?) })
    }

    /// Makes it readable.
    pub(super) fn raise(&self) {
        // The one error of a valid eventfd is a full counter, and then it is readable already.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable.
    pub(super) fn consume(&self) -> io::Result<()> {
        match rustix::io::read(&self.fd, &mut [0; 8]) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
