//! The epoll descriptor by which an engine sleeps: its completion channels, and the watches on its peers' processes.
//!
//! A process of this host is watched by its pidfd, one of another host by a TCP connection that it holds: the kernel
//! closes both when the process ends, by a crash included.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::{Errno, Result};

/// The interval between two looks while nobody sleeps; each look is a system call in the driving loop.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Deaths taken with one look; the next look takes the others.
const BATCH: usize = 16;
/// The key of the completion channels; keys of lanes never reach it.
const CHANNEL: u64 = u64::MAX;

/// The evidence by which the end of a process is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// The pidfd of a process of this host, with its number.
    Process(u32),
    /// The end of a connection that the process holds, and over which nothing is sent.
    Connection,
}

/// The watched processes, by keys that the engine chooses (one for each lane).
#[derive(Debug)]
pub(crate) struct Deaths {
    epoll: OwnedFd,
    /// The evidence and the descriptor of each process, by key.
    processes: HashMap<u64, (Sign, OwnedFd)>,
    /// The time of the last look.
    looked: Option<Instant>,
}

impl Deaths {
    /// Makes the descriptor, which is readable when one of `channels` is; no process is watched yet.
    pub(crate) fn new<'a>(channels: impl IntoIterator<Item = BorrowedFd<'a>>) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for channel in channels {
            epoll::add(&epoll, channel, epoll::EventData::new_u64(CHANNEL), epoll::EventFlags::IN)?;
        }
        Ok(Self { epoll, processes: HashMap::new(), looked: None })
    }

    /// Watches a process until it is dead or [forgotten](Self::forget).
    pub(crate) fn watch(&mut self, key: u64, sign: Sign, process: OwnedFd) -> Result<()> {
        let flags = match sign {
            Sign::Process(_) => epoll::EventFlags::IN,
            Sign::Connection => epoll::EventFlags::RDHUP,
        };
        let added = epoll::add(&self.epoll, &process, epoll::EventData::new_u64(key), flags);
        // A connection is kept though it cannot be watched, because the peer may watch its other end.
        if added.is_ok() || sign == Sign::Connection {
            self.processes.insert(key, (sign, process));
        }
        added
    }

    /// Keeps a connection open that the peer may watch, until it is [forgotten](Self::forget). It is not watched here.
    pub(crate) fn hold(&mut self, key: u64, connection: OwnedFd) {
        self.processes.insert(key, (Sign::Connection, connection));
    }

    /// Watches or holds under the key `to` what was watched or held under `from`, unless `to` has its own.
    pub(crate) fn rename(&mut self, from: u64, to: u64) {
        if self.processes.contains_key(&to) {
            return self.forget(from);
        }
        let Some((sign, process)) = self.processes.remove(&from) else { return };
        // A connection that is held is not in the set, and stays out of it.
        if epoll::delete(&self.epoll, &process).is_err() {
            self.hold(to, process);
        } else if let Err(error) = self.watch(to, sign, process) {
            crate::log::debug!(%error, "cannot watch a peer over another lane: its death will show as silence only");
        }
    }

    /// Whether the process is watched, or its connection is held.
    pub(crate) fn is_watched(&self, key: u64) -> bool {
        self.processes.contains_key(&key)
    }

    /// Ends the watch, and closes the descriptor.
    pub(crate) fn forget(&mut self, key: u64) {
        let _ = self.take(key);
    }

    fn take(&mut self, key: u64) -> Option<Sign> {
        let (sign, process) = self.processes.remove(&key)?;
        // Removed by name: closing the descriptor is not enough while a forked child holds a copy of it.
        let _ = epoll::delete(&self.epoll, &process);
        Some(sign)
    }

    /// Makes the next [`look`](Self::look) look whenever it comes: a sleeper has woken, perhaps by a death.
    pub(crate) fn look_next(&mut self) {
        self.looked = None;
    }

    /// Calls `died` with the key and the sign of each process that has died, in the order of the deaths, each once.
    /// Does nothing within 10 ms after the last look.
    pub(crate) fn look(&mut self, now: Instant, mut died: impl FnMut(u64, Sign)) {
        let soon = |looked: Instant| now.saturating_duration_since(looked) < LOOK_EVERY;
        if self.processes.is_empty() || self.looked.is_some_and(soon) {
            return;
        }
        self.looked = Some(now);
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [none; BATCH];
        let count = match epoll::wait(&self.epoll, &mut events[..], Some(&Timespec::default())) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(error) => return crate::log::debug!(%error, "cannot look for deaths of peers this time"),
        };
        for event in &events[..count.min(BATCH)] {
            let key = event.data.u64();
            if let Some(sign) = self.take(key) {
                died(key, sign);
            }
        }
    }
}

impl AsFd for Deaths {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests;
