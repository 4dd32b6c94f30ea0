//! The cgroups of the process, found for one controller in v1, v2 and the hybrid layout.
//!
//! Walks from `/proc/self/cgroup` and `mountinfo` to the directories of a controller. The files in those
//! directories are left to `memory` and `rdma`.

mod membership;
mod memory;
mod mount;
mod rdma;

pub use memory::MemoryCgroup;
pub use rdma::{RdmaCgroup, RdmaCounts, RdmaResource};

use super::reading::{NotKnown, Reading, read_as, read_file};
use std::io;
use std::path::{Path, PathBuf};

/// The cgroups that limit one kind of resource, from the process's own upwards.
///
/// Each of them must admit an allocation. Left out are groups in which the controller is not enabled, and the
/// root group, which has no limits.
///
/// A part of [`PinningSnapshot`](crate::memory::pinning::PinningSnapshot).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hierarchy<T> {
    /// The process's own group first, then its ancestors.
    pub groups: Vec<T>,
    /// Further ancestors exist whose limits hold too but cannot be read from here, as in a container.
    pub ancestors_hidden: bool,
}

/// The cgroup version, which decides the names of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// The directories to read from: the files of a process, and the root that its mount points are relative to.
pub(super) struct Roots<'a> {
    pub(super) process: &'a Path,
    pub(super) root: &'a Path,
}

/// Reads the memory cgroups of the process.
pub(super) fn read_memory(roots: &Roots<'_>) -> Reading<Hierarchy<MemoryCgroup>> {
    read_hierarchy(roots, "memory", memory::limit_file, MemoryCgroup::read)
}

/// Reads the rdma cgroups of the process.
pub(super) fn read_rdma(roots: &Roots<'_>) -> Reading<Hierarchy<RdmaCgroup>> {
    read_hierarchy(roots, "rdma", |_| rdma::MAX_FILE, |_, directory| RdmaCgroup::read(directory))
}

fn read_hierarchy<T>(
    roots: &Roots<'_>,
    controller: &str,
    limit_file: fn(Version) -> &'static str,
    read: fn(Version, PathBuf) -> T,
) -> Reading<Hierarchy<T>> {
    let (version, directories) = locate(roots, controller)?;
    let ancestors_hidden = directories.last().is_some_and(|top| !is_root(version, top));
    let groups = directories
        .into_iter()
        .filter(|directory| may_limit(version, controller, directory, limit_file(version)))
        .map(|directory| read(version, directory))
        .collect();
    Ok(Hierarchy { groups, ancestors_hidden })
}

/// Returns the directories of the process's group and of its ancestors, as far up as they are mounted here.
fn locate(roots: &Roots<'_>, controller: &str) -> Reading<(Version, Vec<PathBuf>)> {
    let groups_file = roots.process.join("cgroup");
    let mounts_file = roots.process.join("mountinfo");
    let groups = read_as(&groups_file, membership::parse)?;
    let mounts = read_as(&mounts_file, |text| Ok(mount::parse(text)))?;

    let (version, group) = membership::find(&groups, controller)
        .ok_or_else(|| NotKnown::new(&groups_file, format!("no cgroup for `{controller}`")))?;
    let mut mounts = mounts.iter().filter(|mount| mount.serves(version, controller)).peekable();
    if mounts.peek().is_none() {
        let what = if version == Version::V1 { controller } else { "cgroup2" };
        return Err(NotKnown::new(&mounts_file, format!("`{what}` is not mounted here")));
    }
    // A container may have several mounts; the one that shows the most ancestors is used.
    let below = mounts.filter_map(|mount| Some((mount, mount.below(group)?)));
    let Some((mount, below)) = below.max_by_key(|(_, below)| below.len()) else {
        return Err(NotKnown::new(&mounts_file, format!("no mount shows the cgroup {group}")));
    };
    let top = mount.directory(roots.root);
    let own = below.iter().fold(top.clone(), |dir, name| dir.join(name));
    let directories = own.ancestors().take_while(|directory| directory.starts_with(&top));
    Ok((version, directories.map(Path::to_owned).collect()))
}

/// Returns whether a group may have a limit. Only positive evidence says that it has none. A file that is
/// unreadable, or missing for no visible reason, is kept and reported as not known.
fn may_limit(version: Version, controller: &str, directory: &Path, limit_file: &str) -> bool {
    match read_file(&directory.join(limit_file)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let without_controller = version == Version::V2
                && read_file(&directory.join("cgroup.controllers"))
                    .is_ok_and(|controllers| !controllers.split_ascii_whitespace().any(|c| c == controller));
            !without_controller && !is_root(version, directory)
        }
        _ => true,
    }
}

/// Returns whether a directory is the root of its hierarchy. In v1 one file exists only there, in v2 one
/// exists everywhere but there.
fn is_root(version: Version, directory: &Path) -> bool {
    let exists = |file| directory.join(file).try_exists();
    match version {
        Version::V1 => exists("release_agent").unwrap_or(false),
        Version::V2 => exists("cgroup.procs").unwrap_or(false) && !exists("cgroup.type").unwrap_or(true),
    }
}

#[cfg(test)]
mod tests;
