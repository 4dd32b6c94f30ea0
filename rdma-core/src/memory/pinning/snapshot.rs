//! Snapshot of everything that limits pinning, and its printed summary.
//!
//! Judging the values is left to `explain`.

use super::capability::IpcLock;
use super::cgroup::{self, Hierarchy, MemoryCgroup, RdmaCgroup, RdmaCounts};
use super::memlock::{Memlock, parse_kib};
use super::reading::{Bytes, Limit, Reading, read_as};
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
/// A file that cannot be read gives [`NotKnown`](super::NotKnown) and never counts as "unlimited". The values change
/// while other threads and processes pin and free memory, so a prediction from them may be outdated.
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
        writeln!(f, "RLIMIT_MEMLOCK: soft {}, hard {}", limit(soft), limit(hard))?;
        let (pinned, locked) = (bytes(pinned_bytes), bytes(locked_bytes));
        writeln!(f, "pinned: {pinned}; locked by mlock, which counts apart: {locked}")?;
        writeln!(f, "CAP_IPC_LOCK: {}", self.ipc_lock)?;
        self.fmt_memory(f)?;
        self.fmt_rdma(f)?;
        write!(f, "memory available on the system: {}", bytes(&self.available_bytes))
    }
}

impl PinningSnapshot {
    fn fmt_memory(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for group in groups(&self.memory_cgroups) {
            let (used, cache) = (bytes(&group.used_bytes), bytes(&group.reclaimable_bytes));
            writeln!(f, "{}: {}", group.limit_file.display(), limit(&group.limit))?;
            writeln!(f, "  used {used}, of that file cache {cache}")?;
        }
        fmt_rest(f, "memory", &self.memory_cgroups)
    }

    fn fmt_rdma(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for group in groups(&self.rdma_cgroups) {
            let file = group.limit_file.display();
            writeln!(f, "{file}, limits: {}", counts(&group.max))?;
            writeln!(f, "{file}, in use: {}", counts(&group.current))?;
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

/// Returns the text of a limit, or that it is not known.
fn limit(reading: &Reading<Limit>) -> String {
    reading.as_ref().map_or_else(ToString::to_string, |limit| limit_in_bytes(*limit))
}

/// Returns the text of a number of bytes, or that it is not known.
fn bytes(reading: &Reading<u64>) -> String {
    reading.as_ref().map_or_else(ToString::to_string, |bytes| Bytes(*bytes).to_string())
}

/// Returns the text of a limit in bytes.
pub(super) fn limit_in_bytes(limit: Limit) -> String {
    match limit {
        Limit::AtMost(most) => Bytes(most).to_string(),
        Limit::Unlimited => limit.to_string(),
    }
}

/// Returns the text of all lines of `rdma.max` or `rdma.current`, or that they are not known.
fn counts(reading: &Reading<Vec<RdmaCounts>>) -> String {
    let line = |line: &RdmaCounts| {
        format!("{} hca_handle {}, hca_object {}", line.device, line.hca_handle, line.hca_object)
    };
    match reading {
        Ok(counts) if counts.is_empty() => "no device".to_owned(),
        Ok(counts) => counts.iter().map(line).collect::<Vec<_>>().join("; "),
        Err(unknown) => unknown.to_string(),
    }
}
