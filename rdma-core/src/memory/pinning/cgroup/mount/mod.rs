//! Parser of the lines of `mountinfo` that mount a cgroup file system.
//!
//! Also tells which part of a hierarchy a mount shows. The group to look for is left to `membership`.

use super::Version;
use std::path::{Path, PathBuf};

/// A mount of a cgroup hierarchy, or of the part of one below `root`. See `proc_pid_mountinfo(5)`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CgroupMount {
    version: Version,
    /// The group at the top of this mount.
    root: String,
    mount_point: String,
    /// Options of the file system; in v1 they name its controllers.
    options: Vec<String>,
}

/// Parses all lines. Lines that are malformed, or mount something else, show no cgroup and are skipped.
pub(super) fn parse(text: &str) -> Vec<CgroupMount> {
    text.lines().filter_map(parse_line).collect()
}

/// Parses `ID PARENT MAJOR:MINOR ROOT MOUNT-POINT OPTIONS [TAGS…] - TYPE SOURCE SUPER-OPTIONS`.
fn parse_line(line: &str) -> Option<CgroupMount> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, mount_point) = (mount.next()?, mount.next()?);
    let mut file_system = file_system.split(' ');
    let version = match file_system.next()? {
        "cgroup" => Version::V1,
        "cgroup2" => Version::V2,
        _ => return None,
    };
    let options = file_system.nth(1).unwrap_or("").split(',').map(str::to_owned).collect();
    Some(CgroupMount { version, root: unescape(root), mount_point: unescape(mount_point), options })
}

/// Undoes the kernel's escapes: a backslash and three octal digits for each blank, newline and backslash.
fn unescape(field: &str) -> String {
    let mut out = String::new();
    let mut rest = field;
    while let Some((before, escape)) = rest.split_once('\\') {
        out.push_str(before);
        match escape.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if byte.is_ascii() => {
                out.push(char::from(byte));
                rest = escape.get(3..).unwrap_or("");
            }
            _ => {
                out.push('\\');
                rest = escape;
            }
        }
    }
    out + rest
}

impl CgroupMount {
    /// Returns whether this mount shows the hierarchy of `controller`.
    pub(super) fn serves(&self, version: Version, controller: &str) -> bool {
        self.version == version && (version == Version::V2 || self.options.iter().any(|o| o == controller))
    }

    /// Returns the names that lead from the top of this mount down to `group`; `None` when the mount does not
    /// show the group.
    pub(super) fn below<'a>(&self, group: &'a str) -> Option<Vec<&'a str>> {
        let names = |path: &'a str| path.split('/').filter(|name| !name.is_empty());
        let mut rest = names(group);
        for name in self.root.split('/').filter(|name| !name.is_empty()) {
            if rest.next() != Some(name) {
                return None;
            }
        }
        let below: Vec<_> = rest.collect();
        // The kernel prints `..` for names outside the cgroup namespace, which it hides.
        if below.contains(&"..") || self.root.split('/').any(|name| name == "..") {
            None
        } else {
            Some(below)
        }
    }

    /// Returns the directory of the mount point, relative to `root`.
    pub(super) fn directory(&self, root: &Path) -> PathBuf {
        root.join(self.mount_point.trim_start_matches('/'))
    }
}

#[cfg(test)]
mod tests;
