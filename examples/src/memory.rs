//! How much memory this process may still take, so that a pool that does not fit is an error and not a kill.
//!
//! Pinning has limits of its own (RLIMIT_MEMLOCK and more); those are `rdma_core`'s to explain.

use crate::sizes::format_rounded;
use std::fs;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Where the kernel tells what is free.
#[derive(Debug, Clone)]
pub struct Roots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys/fs/cgroup`.
    pub cgroup: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: "/proc".into(), cgroup: "/sys/fs/cgroup".into() }
    }
}

/// The tightest limit found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Available {
    /// Bytes that can still be taken.
    pub bytes: u64,
    /// The file that gives the number.
    pub source: PathBuf,
}

/// A request for memory that the machine or the container does not have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{what} needs {} of memory, and {} allows {} more: {mend}, or run where more is free",
    format_rounded(*.need), .available.source.display(), format_rounded(.available.bytes)
)]
pub struct NotEnough {
    /// Purpose of the memory.
    pub what: String,
    /// Bytes.
    pub need: u64,
    /// Memory that there is.
    pub available: Available,
    /// Remedy: what to change.
    pub mend: &'static str,
}

/// Looks at MemAvailable and at every memory cgroup above this process, version 1 and 2; `None` where no file
/// tells (not Linux, or `/proc` hidden).
pub fn available(roots: &Roots) -> Option<Available> {
    let mut candidates = Vec::from_iter(machine(roots));
    for (hierarchy, path) in memory_cgroups(roots) {
        let base = match hierarchy {
            Hierarchy::Unified => roots.cgroup.clone(),
            Hierarchy::Memory => roots.cgroup.join("memory"),
        };
        candidates.extend(
            path.ancestors()
                .filter_map(|ancestor| ancestor.strip_prefix("/").ok())
                .filter_map(|relative| hierarchy.headroom(&base.join(relative))),
        );
        // Inside a cgroup namespace the path may name nothing; the root that is mounted is then our own.
        candidates.extend(hierarchy.headroom(&base));
    }
    candidates.into_iter().min_by_key(|available| available.bytes)
}

/// Holds a need against what is available; where that is unknown, everything is allowed.
///
/// # Errors
///
/// [`NotEnough`], which names the limit.
pub fn require(roots: &Roots, what: &str, need: u64, mend: &'static str) -> Result<(), NotEnough> {
    match available(roots) {
        Some(available) if available.bytes < need => {
            Err(NotEnough { what: what.to_owned(), need, available, mend })
        }
        _ => Ok(()),
    }
}

fn machine(roots: &Roots) -> Option<Available> {
    let source = roots.proc.join("meminfo");
    let text = fs::read_to_string(&source).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Available { bytes: kibibytes.saturating_mul(1024), source })
}

#[derive(Clone, Copy)]
enum Hierarchy {
    /// Version 2.
    Unified,
    /// Version 1's memory controller.
    Memory,
}

/// This process's cgroups that count memory, from `/proc/self/cgroup`.
fn memory_cgroups(roots: &Roots) -> Vec<(Hierarchy, PathBuf)> {
    let text = fs::read_to_string(roots.proc.join("self/cgroup")).unwrap_or_default();
    let parse = |line: &str| {
        let (id, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let path = PathBuf::from(path);
        // A path with `..` points outside this namespace: nothing under our mount answers for it.
        let inside = !path.components().any(|part| part == std::path::Component::ParentDir);
        let path = if inside { path } else { PathBuf::from("/") };
        match (id, controllers) {
            ("0", "") => Some((Hierarchy::Unified, path)),
            _ if controllers.split(',').any(|name| name == "memory") => Some((Hierarchy::Memory, path)),
            _ => None,
        }
    };
    text.lines().filter_map(parse).collect()
}

impl Hierarchy {
    /// Limit less use, counting file cache that the kernel would drop first as free.
    fn headroom(self, folder: &Path) -> Option<Available> {
        let (limit, used, cache) = match self {
            Self::Unified => ("memory.max", "memory.current", "inactive_file"),
            Self::Memory => ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        };
        let source = folder.join(limit);
        let limit = number(&source)?; // `max` is no number: no limit
        let used = number(&folder.join(used))?;
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let cache = stat
            .lines()
            .filter_map(|line| line.split_once(' '))
            .find(|&(name, _)| name == cache)
            .and_then(|(_, value)| value.trim().parse().ok())
            .unwrap_or(0);
        Some(Available { bytes: limit.saturating_sub(used.saturating_sub(cache)), source })
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// A `/proc` and a `/sys/fs/cgroup` with these files.
    fn roots(files: &[(&str, &str)]) -> (TempDir, Roots) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let roots = Roots { proc: folder.path().join("proc"), cgroup: folder.path().join("cgroup") };
        (folder, roots)
    }

    const MEMINFO: (&str, &str) =
        ("proc/meminfo", "MemTotal:  9 kB\nMemAvailable:    4096 kB\nSwapFree: 1 kB\n");

    #[test]
    fn without_a_cgroup_the_machine_decides() {
        let (_folder, roots) = roots(&[MEMINFO, ("proc/self/cgroup", "0::/user.slice\n")]);
        let available = available(&roots).unwrap();
        assert_eq!((available.bytes, available.source), (4 << 20, roots.proc.join("meminfo")));
    }

    #[test]
    fn the_tightest_cgroup_above_decides() {
        let (_folder, roots) = roots(&[
            MEMINFO,
            ("proc/self/cgroup", "0::/pod/box\n"),
            ("cgroup/pod/box/memory.max", "max\n"),
            ("cgroup/pod/box/memory.current", "1000\n"),
            ("cgroup/pod/memory.max", "1000000\n"),
            ("cgroup/pod/memory.current", "600000\n"),
            ("cgroup/pod/memory.stat", "anon 1\ninactive_file 100000\n"),
        ]);
        let available = available(&roots).unwrap();
        assert_eq!((available.bytes, available.source), (500_000, roots.cgroup.join("pod/memory.max")));
    }

    #[test]
    fn version_1_and_a_path_outside_the_namespace_are_read_too() {
        let (_folder, roots) = roots(&[
            MEMINFO,
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/../other\n0::/\n"),
            ("cgroup/memory/memory.limit_in_bytes", "70000\n"),
            ("cgroup/memory/memory.usage_in_bytes", "69000\n"),
        ]);
        assert_eq!(available(&roots).unwrap().bytes, 1000);
    }

    #[test]
    fn a_need_beyond_what_is_available_names_the_limit() {
        let (_folder, roots) = roots(&[MEMINFO]);
        require(&roots, "the pool", 4 << 20, "lower --prompt").unwrap();
        let error = require(&roots, "the pool", (4 << 20) + 1, "lower --prompt").unwrap_err();
        let text = error.to_string().replace(roots.proc.to_str().unwrap(), "/proc");
        assert_eq!(
            text,
            "the pool needs 4.0 MiB of memory, and /proc/meminfo allows 4.0 MiB more: lower --prompt, or run where more is free"
        );
    }

    #[test]
    fn what_cannot_be_read_forbids_nothing() {
        let (_folder, roots) =
            roots(&[("proc/meminfo", "MemAvailable: many kB\n"), ("proc/self/cgroup", "nonsense\n")]);
        assert_eq!(available(&roots), None);
        require(&roots, "the pool", u64::MAX, "lower --prompt").unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_has_some() {
        assert!(available(&Roots::default()).unwrap().bytes > 0);
    }
}
