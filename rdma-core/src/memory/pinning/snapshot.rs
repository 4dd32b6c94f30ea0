//! Snapshot of everything that limits pinning, and its printed summary.
//!
//! Judging the values is left to `explain`.

use super::capability::IpcLock;
use super::cgroup::{self, Hierarchy, MemoryCgroup, RdmaCgroup, RdmaCounts};
use super::memlock::{Memlock, parse_kib};
use super::reading::{Bytes, Limit, NotKnown, Reading, read_as};
use std::fmt;
use std::path::{Path, PathBuf};

/// The directories in which to look for the limits. The [module](super) has an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinningProbe {
    root: PathBuf,
    process: PathBuf,
}

/// The limits on pinning at one moment, for one thread.
///
/// A file that cannot be read gives [`NotKnown`] and never counts as "unlimited". The values change while
/// other threads and processes pin and free memory, so a prediction from them may be outdated.
///
/// `Display` prints a summary of several lines.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinningSnapshot {
    /// Page size in bytes; the kernel pins whole pages.
    pub page_bytes: u64,
    /// RLIMIT_MEMLOCK, and the bytes that count against it.
    pub memlock: Memlock,
    /// Whether the thread may exceed RLIMIT_MEMLOCK.
    pub ipc_lock: IpcLock,
    /// Limits on memory in general.
    pub memory_cgroups: Reading<Hierarchy<MemoryCgroup>>,
    /// Limits on the number of verbs objects.
    pub rdma_cgroups: Reading<Hierarchy<RdmaCgroup>>,
    /// Bytes that the whole system could still hand out (`MemAvailable`).
    pub available_bytes: Reading<u64>,
}

impl PinningProbe {
    /// Returns a probe of the calling thread on this machine.
    ///
    /// The trap: capabilities belong to threads, so read on the thread that registers.
    #[must_use]
    pub fn new() -> Self {
        Self::at("/")
    }

    /// Returns a probe of the files below `root`: `proc/thread-self`, `proc/meminfo`, and cgroups at the
    /// mount points that `proc/thread-self/mountinfo` names.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self { process: root.join("proc/thread-self"), root }
    }

    /// Changes the probe to the process or thread whose files are in `directory`, such as `/proc/1234`.
    #[must_use]
    pub fn process(self, directory: impl Into<PathBuf>) -> Self {
        Self { process: directory.into(), ..self }
    }

    /// Reads every limit now: about twenty small files, usually in well under a millisecond.
    #[must_use]
    pub fn read(&self) -> PinningSnapshot {
        let roots = cgroup::Roots { process: &self.process, root: &self.root };
        PinningSnapshot {
            page_bytes: rustix::param::page_size() as u64,
            memlock: Memlock::read(&self.process),
            ipc_lock: IpcLock::read(&self.process),
            memory_cgroups: cgroup::read_memory(&roots),
            rdma_cgroups: cgroup::read_rdma(&roots),
            available_bytes: read_available(&self.root),
        }
    }
}

impl Default for PinningProbe {
    fn default() -> Self {
        Self::new()
    }
}

fn read_available(root: &Path) -> Reading<u64> {
    read_as(&root.join("proc/meminfo"), |text| parse_kib(text, "MemAvailable:"))
}

/// Returns the groups of a hierarchy; none when the hierarchy is not known.
pub(super) fn groups<T>(hierarchy: &Reading<Hierarchy<T>>) -> &[T] {
    hierarchy.as_ref().map_or(&[], |hierarchy| &hierarchy.groups)
}

impl fmt::Display for PinningSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Memlock { soft, hard, pinned_bytes, locked_bytes } = &self.memlock;
        writeln!(f, "RLIMIT_MEMLOCK: soft {}, hard {}", Shown(limit(soft)), Shown(limit(hard)))?;
        let (pinned, locked) = (bytes(pinned_bytes), bytes(locked_bytes));
        writeln!(f, "pinned: {}; locked by mlock, which counts apart: {}", Shown(pinned), Shown(locked))?;
        writeln!(f, "CAP_IPC_LOCK: {}", self.ipc_lock)?;
        self.fmt_memory(f)?;
        self.fmt_rdma(f)?;
        write!(f, "memory available on the system: {}", Shown(bytes(&self.available_bytes)))
    }
}

impl PinningSnapshot {
    fn fmt_memory(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for group in groups(&self.memory_cgroups) {
            let (limit, used) = (limit(&group.limit), bytes(&group.used_bytes));
            let cache = bytes(&group.reclaimable_bytes);
            writeln!(f, "{}: {}", group.limit_file.display(), Shown(limit))?;
            writeln!(f, "  used {}, of that file cache {}", Shown(used), Shown(cache))?;
        }
        fmt_rest(f, "memory", &self.memory_cgroups)
    }

    fn fmt_rdma(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for group in groups(&self.rdma_cgroups) {
            for (name, counts) in [("limits", &group.max), ("in use", &group.current)] {
                write!(f, "{}, {name}: ", group.limit_file.display())?;
                match counts {
                    Ok(counts) if counts.is_empty() => writeln!(f, "no device")?,
                    Ok(counts) => writeln!(f, "{}", Listed(counts))?,
                    Err(unknown) => writeln!(f, "{unknown}")?,
                }
            }
        }
        fmt_rest(f, "rdma", &self.rdma_cgroups)
    }
}

/// Prints what is not known about a hierarchy, after its groups.
fn fmt_rest<T>(f: &mut fmt::Formatter<'_>, name: &str, hierarchy: &Reading<Hierarchy<T>>) -> fmt::Result {
    match hierarchy {
        Ok(Hierarchy { groups, ancestors_hidden }) => {
            if groups.is_empty() {
                writeln!(f, "{name} cgroup: none that can be seen")?;
            }
            if *ancestors_hidden {
                writeln!(f, "{name} cgroup: limits of ancestors outside this container are not known")?;
            }
            Ok(())
        }
        Err(unknown) => writeln!(f, "{name} cgroup: {unknown}"),
    }
}

/// Prints a value, or that it is not known.
struct Shown<'a, T>(Result<T, &'a NotKnown>);

impl<T: fmt::Display> fmt::Display for Shown<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(value) => value.fmt(f),
            Err(unknown) => unknown.fmt(f),
        }
    }
}

/// A limit in bytes, for a message.
pub(super) struct LimitBytes(pub(super) Limit);

impl fmt::Display for LimitBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Limit::AtMost(most) => Bytes(most).fmt(f),
            Limit::Unlimited => f.write_str("unlimited"),
        }
    }
}

fn limit(reading: &Reading<Limit>) -> Result<LimitBytes, &NotKnown> {
    reading.as_ref().map(|limit| LimitBytes(*limit))
}

fn bytes(reading: &Reading<u64>) -> Result<Bytes, &NotKnown> {
    reading.as_ref().map(|bytes| Bytes(*bytes))
}

struct Listed<'a>(&'a [RdmaCounts]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, line) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}{} hca_handle {}", line.device, line.hca_handle)?;
            write!(f, ", hca_object {}", line.hca_object)?;
        }
        Ok(())
    }
}
