//! The descriptor by which callers sleep ([`Engine::wake_fd`](super::Engine::wake_fd)).
//!
//! The descriptor is readable when the engine's own descriptor is, and when another thread has taken the event that
//! the caller sleeps for. Without the second part a caller could sleep through an operation that another thread
//! completed.
//!
//! Arm before sleep: a caller arms, drives, looks, and only then sleeps. Whatever happens between arming and sleeping
//! makes the descriptor readable, so no event can fall between the look and the sleep.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;

use super::attendance::{EventLoop, LoopEvent};
use super::thread::Nudge;
use super::{Driver, EngineState};
use crate::engine::SetupError;

/// The callers' descriptor, and the event that makes it readable.
#[derive(Debug)]
pub(super) struct Callers {
    told: Nudge,
    /// An epoll over `told` and the engine's own descriptor. `None` with [`Driver::Thread`]: there the engine's thread
    /// takes the device's events first, so callers need `told` alone.
    either: Option<OwnedFd>,
}

impl Callers {
    /// Makes the descriptor for callers of an engine that itself sleeps by `wake_fd`.
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

    /// Wakes the caller that has armed the engine. If none has, the event is kept for the next one that arms.
    pub(super) fn tell(&self, core: &mut EngineState) {
        if core.attendance.on_event_loop(LoopEvent::News) == EventLoop::Armed {
            self.told.send();
        }
    }

    /// Arms the descriptor for the next event. Earlier wake-ups are cleared, since the caller looks after arming; an
    /// event that found nobody armed makes the descriptor readable at once.
    pub(super) fn arm(&self, core: &mut EngineState) {
        self.told.clear();
        if core.attendance.on_event_loop(LoopEvent::Arm) == EventLoop::Missed {
            self.told.send();
        }
    }
}

impl AsFd for Callers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.either.as_ref().map_or(self.told.as_fd(), AsFd::as_fd)
    }
}

/// An epoll that is readable when one of the two descriptors is.
fn either(left: BorrowedFd<'_>, right: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let either = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, fd) in (0..).zip([left, right]) {
        epoll::add(&either, fd, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
    }
    Ok(either)
}
