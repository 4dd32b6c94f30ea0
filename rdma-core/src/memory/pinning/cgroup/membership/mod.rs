//! Parser of `/proc/self/cgroup`: one line for each hierarchy, with the cgroup of the process in it.
//!
//! Also chooses between v1 and v2 for a controller. Where a cgroup is mounted is left to `mount`.

use super::Version;
use crate::memory::pinning::reading::Quoted;

/// The cgroup of the process in one hierarchy. See `cgroups(7)`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Membership {
    version: Version,
    controllers: Vec<String>,
    group: String,
}

/// The longest path of a group in bytes, that of the kernel (PATH_MAX): a longer one would be looked at level by level.
const GROUP_BYTES_MAX: usize = 4096;

pub(super) fn parse(text: &str) -> Result<Vec<Membership>, String> {
    text.lines().map(parse_line).collect()
}

/// Parses `HIERARCHY:CONTROLLERS:GROUP`. A group may itself contain colons, and v2 is hierarchy 0.
fn parse_line(line: &str) -> Result<Membership, String> {
    let malformed = || format!("{} is not HIERARCHY:CONTROLLERS:GROUP", Quoted(line));
    let (hierarchy, rest) = line.split_once(':').ok_or_else(malformed)?;
    let (controllers, group) = rest.split_once(':').ok_or_else(malformed)?;
    if !group.starts_with('/') || group.len() > GROUP_BYTES_MAX {
        return Err(malformed());
    }
    Ok(Membership {
        version: if hierarchy == "0" { Version::V2 } else { Version::V1 },
        controllers: controllers.split(',').map(str::to_owned).collect(),
        group: group.to_owned(),
    })
}

/// Returns the version and the group for a controller. A controller that is bound to a v1 hierarchy works
/// only there; all others belong to v2.
pub(super) fn find<'a>(groups: &'a [Membership], controller: &str) -> Option<(Version, &'a str)> {
    let v1 =
        groups.iter().find(|m| m.version == Version::V1 && m.controllers.iter().any(|c| c == controller));
    let found = v1.or_else(|| groups.iter().find(|m| m.version == Version::V2))?;
    Some((found.version, &found.group))
}

#[cfg(test)]
mod tests;
