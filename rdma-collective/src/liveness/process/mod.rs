//! The name of a process that no other process has, and the descriptor that tells when it ends.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::link::codec::{Ended, NoRoom, Reader, Writer};

/// Time for a dying process to end: a killed one stops listening some moments before it counts as ended.
pub(crate) const EXIT_WITHIN: Duration = Duration::from_millis(100);

/// The name of a process. The pid alone is not enough: another host, another container, or a later process may have
/// the same.
///
/// All fields are 0 if one of them cannot be found out (without `/proc`, for example). Such a name matches nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Process {
    /// The running kernel's `boot_id`.
    pub(crate) boot: [u8; 16],
    /// Inode of the namespace that `pid` counts in.
    pub(crate) pid_namespace: u64,
    /// The start time, in the kernel's ticks since boot, whatever the time namespace of the reader. It tells the
    /// process from a later one with the same pid.
    pub(crate) start: u64,
    pub(crate) pid: u32,
}

/// The outcome of an attempt to watch a process.
#[derive(Debug)]
pub(crate) enum Watch {
    /// The process runs; the descriptor (a pidfd) becomes readable when it ends.
    Runs(OwnedFd),
    /// The process has ended.
    Ended,
    /// The process cannot be watched: it is this one, or on another host, or in another pid namespace.
    Unseen,
}

impl Process {
    /// The name of this process; all 0 if it cannot be found out.
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

    /// The name of another process of this host and pid namespace.
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

    /// Whether the kernel here cannot watch the process: it is on another host than `own`, or in another pid namespace.
    pub(crate) fn is_elsewhere(&self, own: &Self) -> bool {
        let nobody = Self::default();
        *self == nobody || *own == nobody || (self.boot, self.pid_namespace) != (own.boot, own.pid_namespace)
    }

    /// Opens a descriptor that tells when the process ends.
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
            // The start time is compared after the descriptor is open, not before: the kernel may have given the pid to
            // another process until then, and cannot while the descriptor holds it.
            Ok(descriptor) if start_of(self.pid).is_some_and(|start| start.abs_diff(self.start) <= 1) => {
                Watch::Runs(descriptor)
            }
            Ok(_) | Err(Errno::SRCH) => Watch::Ended,
            // The kernel or a sandbox refuses pidfds, or no descriptor is left.
            Err(error) => {
                crate::log::debug!(pid = self.pid, %error, "cannot watch the process of a peer: its death will show as silence only");
                Watch::Unseen
            }
        }
    }

    /// Whether the process has ended, or ends within `patience`. `false` for one that cannot be watched.
    pub(crate) fn ends_within(&self, patience: Duration) -> bool {
        match self.watch() {
            Watch::Runs(descriptor) => {
                let patience = Timespec::try_from(patience).ok();
                matches!(poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], patience.as_ref()), Ok(1))
            }
            Watch::Ended => true,
            Watch::Unseen => false,
        }
    }
}

/// The start time of a process, in ticks since boot; `None` if no process has that pid. Readers of several time
/// namespaces may differ by one tick, because each rounds its own offset.
fn start_of(pid: u32) -> Option<u64> {
    // The process's name is in brackets and may contain any character, brackets too: split at the last one. The 20th
    // field behind it is the start time (proc(5), `starttime`).
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind) = stat.rsplit_once(')')?;
    let start: i64 = behind.split_whitespace().nth(19)?.parse().ok()?;
    // The kernel adds the offset of the reader's time namespace.
    start.checked_sub(boot_offset())?.try_into().ok()
}

/// The offset of this process's time namespace to the clock since boot, in ticks. 0 where the kernel has none.
fn boot_offset() -> i64 {
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let boot = offsets.lines().find_map(|line| line.strip_prefix("boottime"));
    let mut words = boot.unwrap_or_default().split_whitespace().map(|word| word.parse::<i64>().unwrap_or(0));
    let (seconds, nanos) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    let ticks = clock_ticks_per_second() as i64;
    seconds.saturating_mul(ticks) + nanos / (1_000_000_000 / ticks.max(1))
}

#[cfg(test)]
mod tests;
