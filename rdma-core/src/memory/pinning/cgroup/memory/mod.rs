//! Limit and use of a memory cgroup.
//!
//! Reads the files of the memory controller, under their v1 and v2 names. Finding the groups is left to the
//! parent module.

use super::Version;
use crate::memory::pinning::reading::{Limit, Reading, parse_number, read_as};
use std::path::PathBuf;

/// Smallest number that v1 prints for "unlimited": `i64::MAX`, rounded down to a page of at most 64 KiB.
const V1_UNLIMITED: u64 = i64::MAX as u64 & !0xFFFF;

/// A memory cgroup that the process's memory is charged to.
///
/// Memory is charged when it is first touched. So pinning memory that is already resident charges nothing.
///
/// # References
///
/// `cgroups(7)`; `Documentation/admin-guide/cgroup-v2.rst` and `cgroup-v1/memory.rst` of the kernel
///
/// A part of [`PinningSnapshot`](crate::memory::pinning::PinningSnapshot).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryCgroup {
    /// The file that holds the limit; raise the limit there.
    pub limit_file: PathBuf,
    /// The limit in bytes (v2 `memory.max`, v1 `memory.limit_in_bytes`).
    pub limit: Reading<Limit>,
    /// Bytes charged now (v2 `memory.current`, v1 `memory.usage_in_bytes`).
    pub used_bytes: Reading<u64>,
    /// Bytes of `used_bytes` that are file cache, which the kernel frees before it refuses an allocation.
    pub reclaimable_bytes: Reading<u64>,
}

pub(super) fn limit_file(version: Version) -> &'static str {
    match version {
        Version::V1 => "memory.limit_in_bytes",
        Version::V2 => "memory.max",
    }
}

impl MemoryCgroup {
    pub(super) fn read(version: Version, directory: PathBuf) -> Self {
        let (used, cache) = match version {
            Version::V1 => ("memory.usage_in_bytes", ["total_active_file", "total_inactive_file"]),
            Version::V2 => ("memory.current", ["active_file", "inactive_file"]),
        };
        let limit_file = directory.join(limit_file(version));
        Self {
            limit: read_as(&limit_file, parse_limit),
            used_bytes: read_as(&directory.join(used), parse_number),
            reclaimable_bytes: read_as(&directory.join("memory.stat"), |text| parse_stat(text, cache)),
            limit_file,
        }
    }

    /// Returns how many of `need_bytes` this group would refuse; `None` when its limit or its use is not
    /// known.
    #[must_use]
    pub fn shortfall_bytes(&self, need_bytes: u64) -> Option<u64> {
        let used = *self.used_bytes.as_ref().ok()?;
        // Unknown cache must not count as 0, otherwise a group that is full of cache only would seem to be
        // out of memory.
        let reclaimable = *self.reclaimable_bytes.as_ref().ok()?;
        Some(self.limit.as_ref().ok()?.shortfall(used.saturating_sub(reclaimable), need_bytes))
    }
}

fn parse_limit(text: &str) -> Result<Limit, String> {
    if text.trim() == "max" {
        return Ok(Limit::Unlimited);
    }
    parse_number(text).map(|n| if n >= V1_UNLIMITED { Limit::Unlimited } else { Limit::AtMost(n) })
}

/// Returns the sum of the named lines of `memory.stat`.
fn parse_stat(text: &str, names: [&str; 2]) -> Result<u64, String> {
    names.iter().try_fold(0_u64, |sum, name| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(sum.saturating_add(parse_number(value.ok_or_else(|| format!("no line `{name}`"))?)?))
    })
}

#[cfg(test)]
mod tests;
