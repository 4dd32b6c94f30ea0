//! Event channels: a descriptor that becomes readable when there is an event.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// An eventfd. Clones are the same descriptor.
#[derive(Debug, Clone)]
pub(super) struct Channel {
    fd: Arc<OwnedFd>,
}

impl Channel {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { fd: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?) })
    }

    /// Makes the descriptor readable.
    pub(super) fn raise(&self) {
        // The only error of a valid eventfd is a full counter, and then it is readable already.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable again.
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
