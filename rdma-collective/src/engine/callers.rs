//! The descriptor that callers wait by: readable for what the engine sleeps for, and when somebody else has taken it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;

use super::thread::Nudge;
use super::{Core, Driver};
use crate::engine::SetupError;

/// See the module.
#[derive(Debug)]
pub(super) struct Callers {
    told: Nudge,
    /// That, and the engine's own descriptor; absent where a thread takes the engine's events before any caller.
    either: Option<OwnedFd>,
}

impl Callers {
    /// Of an engine that sleeps by `wake_fd`.
    pub(super) fn new(driver: Driver, wake_fd: BorrowedFd<'_>) -> Result<Self, SetupError> {
        let told = Nudge::new()?;
        let either = match driver {
            Driver::Thread => None,
            Driver::Caller => Some(either(wake_fd, told.as_fd()).map_err(|source| {
                SetupError::Descriptor { what: "callers of the engine", source: source.into() }
            })?),
        };
        Ok(Self { told, either })
    }

    /// Something has happened: who has armed the engine looks, and who has yet to do so is told then.
    pub(super) fn tell(&self, core: &mut Core) {
        if std::mem::take(&mut core.armed) {
            self.told.send();
        } else {
            core.missed = true;
        }
    }

    /// What was told is known; what was not is told now.
    pub(super) fn arm(&self, core: &mut Core) {
        self.told.clear();
        core.armed = true;
        if std::mem::take(&mut core.missed) {
            self.told.send();
        }
    }
}

impl AsFd for Callers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.either.as_ref().map_or(self.told.as_fd(), AsFd::as_fd)
    }
}

/// Readable when one of them is.
fn either(left: BorrowedFd<'_>, right: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let either = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, fd) in (0..).zip([left, right]) {
        epoll::add(&either, fd, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
    }
    Ok(either)
}
