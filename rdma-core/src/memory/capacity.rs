//! Check whether this machine can ever hold an allocation, before touching the memory ends the process.
//!
//! The pages of a memfd are charged when they are touched. So the kernel creates a memfd of any size, and
//! kills the process later. Limits on *pinned* memory are left to `pinning`.

use rustix::process::{Resource, getrlimit};

use super::pinning::{Limit, PinningProbe};
use crate::error::RegisterError;

/// Shorter lengths are not checked, because reading the limits takes some tens of microseconds.
const LEN_MIN: u64 = 64 << 20;

/// Fails if a limit of this machine is smaller than `len`. Memory that is in use now does not count, because
/// it may be free when the pages are touched.
pub(super) fn check(len: u64) -> Result<(), RegisterError> {
    if len < LEN_MIN {
        return Ok(());
    }
    match smallest() {
        Some((limit, name)) if len > limit => Err(RegisterError::BeyondSystem { len, limit, name }),
        _ => Ok(()),
    }
}

/// Returns the limit on file sizes (RLIMIT_FSIZE) if it is smaller than `len`. A memfd is a file, and growing
/// a file beyond this limit ends the process by SIGXFSZ.
pub(crate) fn file_limit_below(len: u64) -> Option<u64> {
    getrlimit(Resource::Fsize).current.filter(|limit| len > *limit)
}

/// Returns the smallest known limit and its name.
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
