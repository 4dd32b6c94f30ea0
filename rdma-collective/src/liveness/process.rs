//! A process by a name that no other has, and a descriptor that tells when it ends.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::link::codec::{Ended, NoRoom, Reader, Writer};

/// A process: a number alone would be another's on another host, in another container, or later.
///
/// One of which something is not known, as without `/proc`, is nobody: it is all 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Process {
    /// The running kernel's `boot_id`.
    pub(crate) boot: [u8; 16],
    /// Inode of the namespace that `pid` counts in.
    pub(crate) pid_namespace: u64,
    /// When it started, in the kernel's ticks since boot.
    pub(crate) start: u64,
    pub(crate) pid: u32,
}

/// What is known of a process that somebody named.
#[derive(Debug)]
pub(crate) enum Watch {
    /// It runs; the descriptor becomes readable when it ends.
    Runs(OwnedFd),
    /// It has ended.
    Ended,
    /// It is this process, or one of which the kernel here tells nothing.
    Unseen,
}

impl Process {
    /// This process.
    pub(crate) fn own() -> Self {
        Self::find_own().unwrap_or_default()
    }

    fn find_own() -> Option<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits: String = boot.trim().chars().filter(|digit| *digit != '-').collect();
        let boot = u128::from_str_radix(&digits, 16).ok()?.to_be_bytes();
        let pid_namespace = std::fs::metadata("/proc/self/ns/pid").ok()?.ino();
        let pid = std::process::id();
        Some(Self { boot, pid_namespace, start: start_of(pid)?, pid })
    }

    /// Another process of this host and namespace.
    #[cfg(test)]
    pub(crate) fn of(pid: u32) -> Self {
        Self { pid, start: start_of(pid).expect("it runs"), ..Self::own() }
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.put(&self.boot)?;
        writer.u64(self.pid_namespace)?;
        writer.u64(self.start)?;
        writer.u32(self.pid)
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Ended> {
        let (boot, pid_namespace, start) = (reader.array()?, reader.u64()?, reader.u64()?);
        Ok(Self { boot, pid_namespace, start, pid: reader.u32()? })
    }

    /// Whether it is on another host than `own`, or behind a wall of which the kernel tells nothing.
    pub(crate) fn is_elsewhere(&self, own: &Self) -> bool {
        let nobody = Self::default();
        *self == nobody || *own == nobody || (self.boot, self.pid_namespace) != (own.boot, own.pid_namespace)
    }

    /// Looks it up.
    pub(crate) fn watch(&self) -> Watch {
        let own = Self::own();
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid.filter(|_| self.boot == own.boot && self.pid_namespace == own.pid_namespace)
        else {
            return Watch::Unseen;
        };
        if *self == own {
            return Watch::Unseen;
        }
        match pidfd_open(pid, PidfdFlags::empty()) {
            // Asked after the descriptor is open: the number may have been given to another before, not since.
            Ok(descriptor) if start_of(self.pid) == Some(self.start) => Watch::Runs(descriptor),
            Ok(_) | Err(Errno::SRCH) => Watch::Ended,
            // A kernel or a sandbox that does not offer it, or no descriptor left.
            Err(error) => {
                tracing::debug!(pid = self.pid, %error, "the end of a peer's process will not be told");
                Watch::Unseen
            }
        }
    }
}

/// When a process started; `None` when there is none of that number.
fn start_of(pid: u32) -> Option<u64> {
    // Its name is in brackets and may contain any character; the 20th number behind it counts from boot.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn child() -> Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn a_process_comes_back_from_its_bytes() {
        let own = Process::own();
        assert_eq!(own.pid, std::process::id());
        assert!(own.start > 0 && own.boot != [0; 16] && own.pid_namespace > 0, "{own:?}");
        let mut bytes = [0; 36];
        own.write(&mut Writer::new(&mut bytes)).unwrap();
        assert_eq!(Process::read(&mut Reader::new(&bytes)), Ok(own));
        assert_eq!(Process::read(&mut Reader::new(&bytes[1..])), Err(Ended));
    }

    #[test]
    fn a_process_that_runs_is_watched_and_one_that_has_ended_is_not_taken_for_another() {
        let mut child = child();
        let process = Process::of(child.id());
        assert!(matches!(process.watch(), Watch::Runs(_)));
        let earlier = Process { start: process.start - 1, ..process };
        assert!(matches!(earlier.watch(), Watch::Ended), "the number is another's now");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(process.watch(), Watch::Ended));
    }

    #[test]
    fn processes_elsewhere_this_one_and_nobody_are_not_seen() {
        let child = child();
        let process = Process::of(child.id());
        let elsewhere = [
            Process { boot: [7; 16], ..process },
            Process { pid_namespace: 1, ..process },
            Process { pid: u32::MAX, ..process },
            Process { pid: 0, ..process },
            Process::default(),
            Process::own(),
        ];
        for process in elsewhere {
            assert!(matches!(process.watch(), Watch::Unseen), "{process:?}");
        }
        let mut child = child;
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
