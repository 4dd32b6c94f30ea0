//! The epoll descriptor by which an engine sleeps: its completion channel, and the watches on its peers' processes.
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
/// The key of the completion channel; keys of lanes never reach it.
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
    /// Makes the descriptor, which is readable when `channel` is; no process is watched yet.
    pub(crate) fn new(channel: BorrowedFd<'_>) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, channel, epoll::EventData::new_u64(CHANNEL), epoll::EventFlags::IN)?;
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
            Err(error) => return tracing::debug!(%error, "cannot look for deaths of peers this time"),
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
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    fn child() -> (Child, OwnedFd) {
        let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        (child, pidfd_open(pid, PidfdFlags::empty()).unwrap())
    }

    fn is_readable(deaths: &Deaths, seconds: i64) -> bool {
        let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
        poll(&mut [PollFd::new(deaths, PollFlags::IN)], Some(&timeout)).unwrap() > 0
    }

    fn look(deaths: &mut Deaths) -> Vec<u64> {
        let mut died = Vec::new();
        deaths.look_next();
        deaths.look(Instant::now(), |key, _| died.push(key));
        died
    }

    #[test]
    fn deaths_wake_and_are_told_once_in_their_order() {
        let channel = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let mut deaths = Deaths::new(channel.as_fd()).unwrap();
        let mut children: Vec<Child> = Vec::new();
        for key in 0..4 {
            let (child, process) = child();
            deaths.watch(key, Sign::Process(child.id()), process).unwrap();
            children.push(child);
        }
        assert!(!is_readable(&deaths, 0) && look(&mut deaths).is_empty());
        deaths.forget(1);
        for index in [3, 1, 0] {
            children[index].kill().unwrap();
            children[index].wait().unwrap();
        }
        assert!(is_readable(&deaths, 60));
        assert_eq!(look(&mut deaths), [3, 0]);
        assert!(!is_readable(&deaths, 0) && look(&mut deaths).is_empty());
        children[2].kill().unwrap();
        children[2].wait().unwrap();
        assert_eq!(look(&mut deaths), [2]);
    }

    #[test]
    fn the_channel_wakes_and_is_nobody() {
        let channel = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let mut deaths = Deaths::new(channel.as_fd()).unwrap();
        let (mut child, process) = child();
        deaths.watch(7, Sign::Process(child.id()), process).unwrap();
        rustix::io::write(&channel, &1_u64.to_ne_bytes()).unwrap();
        assert!(is_readable(&deaths, 60));
        assert!(look(&mut deaths).is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(look(&mut deaths), [7]);
    }

    #[test]
    fn a_connection_that_closes_is_a_death_and_what_comes_over_it_is_none() {
        let channel = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let mut deaths = Deaths::new(channel.as_fd()).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut theirs = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ours, _) = listener.accept().unwrap();
        deaths.watch(5, Sign::Connection, ours.into()).unwrap();
        assert!(deaths.is_watched(5));
        std::io::Write::write_all(&mut theirs, b"?").unwrap();
        assert!(!is_readable(&deaths, 0) && look(&mut deaths).is_empty());
        drop(theirs);
        assert!(is_readable(&deaths, 60));
        assert_eq!(look(&mut deaths), [5]);
        assert!(!deaths.is_watched(5) && !is_readable(&deaths, 0));
    }

    #[test]
    fn looks_that_come_too_soon_are_none() {
        let channel = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let mut deaths = Deaths::new(channel.as_fd()).unwrap();
        let (mut child, process) = child();
        deaths.watch(7, Sign::Process(child.id()), process).unwrap();
        let now = Instant::now();
        deaths.look(now, |key, _| panic!("{key}"));
        child.kill().unwrap();
        child.wait().unwrap();
        deaths.look(now + LOOK_EVERY / 2, |key, _| panic!("{key}"));
        let mut died = None;
        deaths.look(now + LOOK_EVERY, |key, sign| died = Some((key, sign)));
        assert_eq!(died, Some((7, Sign::Process(child.id()))));
    }
}
