//! Whether this machine can hold an allocation at all, before a touch of it ends the process.
//!
//! The memory behind a memfd is charged page by page when it is touched: one that is too large is made without a word,
//! and the process killed later. What pinning it takes is `pinning`'s.

use rustix::process::{Resource, getrlimit};

use super::pinning::{Limit, PinningProbe};
use crate::error::RegisterError;

/// Less than this is not looked into: reading the limits takes some tens of microseconds.
const LEN_MIN: u64 = 64 << 20;

/// That no limit of this machine is below `len`, whatever is free at the moment.
pub(super) fn check(len: u64) -> Result<(), RegisterError> {
    if len < LEN_MIN {
        return Ok(());
    }
    match smallest() {
        Some((limit, name)) if len > limit => Err(RegisterError::BeyondSystem { len, limit, name }),
        _ => Ok(()),
    }
}

/// The limit on the size of a file, if it is below `len`: a file that grows beyond it ends the process by a signal, and a
/// memfd is one.
pub(crate) fn file_limit_below(len: u64) -> Option<u64> {
    getrlimit(Resource::Fsize).current.filter(|limit| len > *limit)
}

/// The smallest limit that is known, and what it is called.
fn smallest() -> Option<(u64, String)> {
    let system = rustix::system::sysinfo();
    let machine = system.totalram.saturating_add(system.totalswap).saturating_mul(system.mem_unit.into());
    let machine = (machine, "what this machine has (MemTotal and SwapTotal of /proc/meminfo)".to_owned());
    let groups = PinningProbe::new().read().memory_cgroups.map(|all| all.groups).unwrap_or_default();
    let groups = groups.into_iter().filter_map(|group| match group.limit {
        Ok(Limit::AtMost(limit)) => Some((limit, format!("what {} says", group.limit_file.display()))),
        _ => None,
    });
    groups.chain([machine]).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_has_is_refused_with_the_limit_and_its_name() {
        let (limit, name) = smallest().unwrap();
        assert!(limit >= 1 << 20, "{limit}");
        let error = check(1 << 50).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&limit.to_string()) && text.contains(&name), "{text}");
        assert!(check(LEN_MIN - 1).is_ok() && check(limit).is_ok());
    }
}
