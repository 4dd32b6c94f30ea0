//! Parts of RDMA outside of the kernel: device nodes, libibverbs and its providers.

use std::path::{Path, PathBuf};

use rustix::fs::Access;

use super::tree;
use crate::memory::pinning::{NotKnown, Reading, read_as};

/// A node in `/dev/infiniband`.
///
/// A part of [`Machine`](super::Machine).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceNode {
    /// The name, such as `uverbs0` or `rdma_cm`.
    pub name: String,
    /// The file.
    pub file: PathBuf,
    /// Whether this process may read and write it. The kernel asks the device cgroup of a container too.
    pub access: Reading<()>,
}

/// libibverbs and its providers, as the folders of libraries show them.
///
/// A part of [`Machine`](super::Machine).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Libraries {
    /// The folder in which the names of the providers stand, `/etc/libibverbs.d`.
    pub folder: PathBuf,
    /// The file of libibverbs; `None` where the usual folders have none. A loader may find it elsewhere, by
    /// `LD_LIBRARY_PATH` or `/etc/ld.so.conf`.
    pub libibverbs: Option<PathBuf>,
    /// The names of the providers that the library loads (`/etc/libibverbs.d/*.driver`), such as `mlx5`.
    pub configured: Reading<Vec<String>>,
    /// The files of providers in the usual folders, such as `…/libibverbs/libmlx5-rdmav34.so`.
    pub providers: Vec<PathBuf>,
}

/// Folders of libraries on the distributions that people use, by the triplet of the processor where it has one.
const FOLDERS: [&str; 8] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib64",
    "lib64",
    "usr/lib",
    "usr/local/lib",
];

impl DeviceNode {
    /// Reads all nodes. Where `/dev` has no folder `infiniband`, there are none.
    pub(super) fn read_all(folder: &Path) -> Reading<Vec<Self>> {
        let names = tree::names_if_there(folder)?;
        Ok(names.into_iter().map(|name| Self::read(folder.join(&name), name)).collect())
    }

    fn read(file: PathBuf, name: String) -> Self {
        let access = rustix::fs::access(&file, Access::READ_OK | Access::WRITE_OK);
        Self { name, access: access.map_err(|error| NotKnown::new(&file, error)), file }
    }
}

impl Libraries {
    pub(super) fn read(root: &Path) -> Self {
        let folder = root.join("etc/libibverbs.d");
        let libraries = FOLDERS.map(|folder| root.join(folder));
        let found = libraries.iter().map(|folder| folder.join("libibverbs.so.1"));
        let providers = libraries.iter().flat_map(|folder| {
            let folder = folder.join("libibverbs");
            // Most of the folders are absent on any one machine.
            let names = tree::names(&folder).unwrap_or_default();
            names.into_iter().filter(|name| name.contains("-rdmav")).map(move |name| folder.join(name))
        });
        Self {
            libibverbs: found.into_iter().find(|file| file.exists()),
            providers: providers.filter(|file| file.exists()).collect(),
            configured: read_configured(&folder),
            folder,
        }
    }

    /// Returns whether the file of a provider such as `mlx5` is there.
    #[must_use]
    pub fn has_provider(&self, name: &str) -> bool {
        let stem = format!("lib{name}-rdmav");
        self.providers
            .iter()
            .filter_map(|file| file.file_name()?.to_str())
            .any(|file| file.starts_with(&stem))
    }
}

/// Reads the names behind the word `driver`; a name may be a path, of which the last part counts.
fn read_configured(folder: &Path) -> Reading<Vec<String>> {
    let mut all = Vec::new();
    for file in tree::names_if_there(folder)?.into_iter().filter(|name| name.ends_with(".driver")) {
        let drivers = read_as(&folder.join(file), |text| {
            let lines = text.lines().filter_map(|line| line.trim().strip_prefix("driver "));
            Ok(lines.filter_map(|name| name.trim().rsplit('/').next().map(str::to_owned)).collect::<Vec<_>>())
        })?;
        all.extend(drivers.into_iter().map(|name| name.trim_start_matches("lib").to_owned()));
    }
    Ok(all)
}
