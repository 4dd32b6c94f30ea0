//! CAP_IPC_LOCK, and whether the calling thread holds it where it counts.
//!
//! Reads `CapEff` and the user namespace. The limit that the capability lifts is left to `memlock`.

use super::reading::{NotKnown, Quoted, Reading, read_as};
use std::fmt;
use std::path::Path;

/// Bit of CAP_IPC_LOCK in a capability set; see `linux/capability.h`.
const CAP_IPC_LOCK: u32 = 14;
/// Inode of the initial user namespace (PROC_USER_INIT_INO), the same on every kernel since 3.8.
const INITIAL_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

/// CAP_IPC_LOCK of the calling thread, and the namespace in which it holds it.
///
/// The kernel asks for it in the *initial* user namespace. A container with a user namespace of its own
/// (rootless, or `hostUsers: false`) may show the capability and still be held to RLIMIT_MEMLOCK.
///
/// # References
///
/// `capabilities(7)`, `user_namespaces(7)`
///
/// A part of [`PinningSnapshot`](crate::memory::pinning::PinningSnapshot).
#[doc(alias = "CAP_IPC_LOCK")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IpcLock {
    /// Whether the capability is in the thread's effective set.
    pub effective: Reading<bool>,
    /// Whether the process lives in the initial user namespace.
    pub initial_user_namespace: Reading<bool>,
}

impl IpcLock {
    pub(super) fn read(process: &Path) -> Self {
        Self {
            effective: read_as(&process.join("status"), parse_effective),
            initial_user_namespace: read_initial_user_namespace(process),
        }
    }

    /// Returns whether the capability lifts RLIMIT_MEMLOCK for memory registrations; `None` when that is not
    /// known.
    #[must_use]
    pub fn lifts_memlock(&self) -> Option<bool> {
        match (&self.effective, &self.initial_user_namespace) {
            (Ok(false), _) | (_, Ok(false)) => Some(false),
            (Ok(true), Ok(true)) => Some(true),
            _ => None,
        }
    }
}

/// Prints in a few words whether the capability is held, and whether it counts.
impl fmt::Display for IpcLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.effective, &self.initial_user_namespace) {
            (Ok(false), _) => f.write_str("not held"),
            (Ok(true), Ok(true)) => f.write_str("held, in the initial user namespace"),
            (Ok(true), Ok(false)) => {
                f.write_str("held, but in a user namespace of the container's own, where it does not count")
            }
            (Ok(true), Err(unknown)) => write!(f, "held, but the user namespace is {unknown}"),
            (Err(unknown), _) => unknown.fmt(f),
        }
    }
}

fn parse_effective(text: &str) -> Result<bool, String> {
    let set = text.lines().find_map(|line| line.strip_prefix("CapEff:")).ok_or("no line `CapEff:`")?.trim();
    let bits =
        u64::from_str_radix(set, 16).map_err(|_| format!("{} is not a capability set", Quoted(set)))?;
    Ok(bits & (1 << CAP_IPC_LOCK) != 0)
}

/// Compares the inode of the user namespace. Where it cannot be read, a partial `uid_map` still proves
/// another namespace. A full map proves nothing, because a privileged creator may give a new namespace the
/// same map.
fn read_initial_user_namespace(process: &Path) -> Reading<bool> {
    let link = process.join("ns/user");
    let why = match std::fs::read_link(&link) {
        Ok(target) => match parse_namespace(&target.to_string_lossy()) {
            Ok(inode) => return Ok(inode == INITIAL_USER_NAMESPACE),
            Err(why) => why,
        },
        Err(error) => error.to_string(),
    };
    match read_as(&process.join("uid_map"), |text| Ok(maps_every_user_to_itself(text))) {
        Ok(false) => Ok(false),
        _ => Err(NotKnown::new(&link, why)),
    }
}

fn parse_namespace(target: &str) -> Result<u64, String> {
    let inode = target.strip_prefix("user:[").and_then(|rest| rest.strip_suffix(']'));
    inode.and_then(|n| n.parse().ok()).ok_or_else(|| format!("{} names no user namespace", Quoted(target)))
}

fn maps_every_user_to_itself(uid_map: &str) -> bool {
    uid_map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests;
