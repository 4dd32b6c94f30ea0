//! RLIMIT_MEMLOCK, and how much the process has pinned and locked.
//!
//! Reads `limits` and the `VmPin` and `VmLck` lines of `status`. Whether CAP_IPC_LOCK lifts the limit is left
//! to `capability`.

use super::reading::{Limit, Quoted, Reading, parse_number, read_as};
use std::path::Path;

/// The memory lock limit of a process, and the bytes that count against it.
///
/// `ibv_reg_mr` adds the pages that are pinned and those of the new registration, and compares the sum with
/// the soft limit, rounded down to pages. Bytes that `mlock(2)` holds are counted separately since Linux 3.2,
/// and use up nothing of it.
///
/// # References
///
/// `getrlimit(2)`, `proc_pid_status(5)`, `proc_pid_limits(5)`
///
/// A part of [`PinningSnapshot`](crate::memory::pinning::PinningSnapshot).
#[doc(alias = "RLIMIT_MEMLOCK")]
#[doc(alias = "VmPin")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memlock {
    /// The limit in force, in bytes.
    pub soft: Reading<Limit>,
    /// The value up to which the process may raise `soft` itself, in bytes.
    pub hard: Reading<Limit>,
    /// Bytes that memory registrations and other long-lived pins hold (`VmPin`).
    pub pinned_bytes: Reading<u64>,
    /// Bytes that `mlock(2)` holds (`VmLck`); they do not count against registrations.
    pub locked_bytes: Reading<u64>,
}

impl Memlock {
    pub(super) fn read(process: &Path) -> Self {
        let limits = read_as(&process.join("limits"), parse_limits);
        let status = process.join("status");
        Self {
            soft: limits.clone().map(|(soft, _)| soft),
            hard: limits.map(|(_, hard)| hard),
            pinned_bytes: read_as(&status, |text| parse_kib(text, "VmPin:")),
            locked_bytes: read_as(&status, |text| parse_kib(text, "VmLck:")),
        }
    }
}

/// Parses the soft and the hard limit from the line `Max locked memory` of `limits`.
fn parse_limits(text: &str) -> Result<(Limit, Limit), String> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let mut fields = line.ok_or("no line `Max locked memory`")?.split_ascii_whitespace();
    let mut limit = || match fields.next() {
        Some("unlimited") => Ok(Limit::Unlimited),
        Some(number) => parse_number(number).map(Limit::AtMost),
        None => Err("the line `Max locked memory` ends early".to_owned()),
    };
    Ok((limit()?, limit()?))
}

/// Parses an amount of `status` or `meminfo`, which the kernel always writes in kB, and returns bytes.
pub(crate) fn parse_kib(text: &str, key: &str) -> Result<u64, String> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)).ok_or(format!("no line `{key}`"))?;
    let number = value.trim().strip_suffix(" kB").ok_or(format!("{} is not in kB", Quoted(value)))?;
    parse_number(number)?.checked_mul(1024).ok_or(format!("{} kB is too many", Quoted(number)))
}

#[cfg(test)]
mod tests;
