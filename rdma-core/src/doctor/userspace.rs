//! Parts of RDMA outside of the kernel: device nodes, libibverbs and its providers.

use std::path::{Path, PathBuf};

use rustix::fs::Access;

use super::tree;
use crate::memory::pinning::{NotKnown, Reading, read_as, read_bytes};

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
    /// The number in the names of the providers that libibverbs loads (34 in `libmlx5-rdmav34.so`), as its file has it;
    /// `None` where the file does not tell, or where there are several that disagree.
    pub provider_abi: Option<u32>,
    /// The names of the providers that the library loads (`/etc/libibverbs.d/*.driver`), such as `mlx5`.
    pub configured: Reading<Vec<String>>,
    /// The files of providers in the usual folders, such as `…/libibverbs/libmlx5-rdmav34.so`.
    pub providers: Vec<PathBuf>,
}

/// Longest file of libibverbs that is read, in bytes: it has 130 KB, and some MB with what debuggers need.
const LIBRARY_BYTES_MAX: u64 = 64 << 20;
/// The text before that number, in the names of providers and in libibverbs.
const ABI_PREFIX: &str = "-rdmav";

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
        let found =
            libraries.iter().map(|folder| folder.join("libibverbs.so.1")).filter(|file| file.exists());
        let found: Vec<_> = found.collect();
        let providers = libraries.iter().flat_map(|folder| {
            let folder = folder.join("libibverbs");
            // Most of the folders are absent on any one machine.
            let names = tree::names(&folder).unwrap_or_default();
            names.into_iter().filter(|name| name.contains(ABI_PREFIX)).map(move |name| folder.join(name))
        });
        Self {
            provider_abi: common_abi(&found),
            libibverbs: found.into_iter().next(),
            providers: providers.filter(|file| file.exists()).collect(),
            configured: read_configured(&folder),
            folder,
        }
    }

    /// Returns whether the file of a provider such as `mlx5` is there, which libibverbs can load.
    #[must_use]
    pub fn has_provider(&self, name: &str) -> bool {
        let abi = self.provider_abi.map(|abi| format!("{abi}.so"));
        self.abis_of(name).any(|(_, end)| abi.as_deref().is_none_or(|abi| abi == end))
    }

    /// Returns the files of a provider, each with the end of its name behind `-rdmav`.
    pub(super) fn abis_of(&self, name: &str) -> impl Iterator<Item = (&str, &str)> {
        let stem = format!("lib{name}{ABI_PREFIX}");
        let names = self.providers.iter().filter_map(|file| file.file_name()?.to_str());
        names.filter_map(move |name| Some((name, name.strip_prefix(&stem)?)))
    }
}

/// Returns the number that all files have; `None` where one has none, or another one.
fn common_abi(libraries: &[PathBuf]) -> Option<u32> {
    let mut abis = libraries.iter().map(|file| abi_in(&read_bytes(file, LIBRARY_BYTES_MAX).ok()?));
    let first = abis.next()??;
    abis.all(|abi| abi == Some(first)).then_some(first)
}

/// Returns N of the text `-rdmavN.so` in a file of libibverbs, from which the library makes the names of providers.
fn abi_in(library: &[u8]) -> Option<u32> {
    let places =
        library.windows(ABI_PREFIX.len()).enumerate().filter(|(_, text)| *text == ABI_PREFIX.as_bytes());
    places.into_iter().find_map(|(place, _)| {
        let end = library.get(place + ABI_PREFIX.len()..)?;
        let digits = end.iter().take_while(|letter| letter.is_ascii_digit()).count();
        let (number, suffix) = end.split_at_checked(digits)?;
        let number = std::str::from_utf8(number).ok()?.parse().ok()?;
        suffix.starts_with(b".so").then_some(number)
    })
}

/// Reads the names behind the word `driver` in all files, as libibverbs does; a name may be a path, of which the last
/// part counts.
fn read_configured(folder: &Path) -> Reading<Vec<String>> {
    let mut all = Vec::new();
    let files = tree::names_if_there(folder)?.into_iter().map(|name| folder.join(name));
    for file in files.filter(|file| !file.is_dir()) {
        let drivers = read_as(&file, |text| {
            let lines = text.lines().map(str::split_whitespace);
            let named =
                lines.filter_map(|mut words| words.next().filter(|word| *word == "driver").and(words.next()));
            Ok(named.filter_map(|name| name.rsplit('/').next().map(str::to_owned)).collect::<Vec<_>>())
        })?;
        all.extend(drivers.into_iter().map(|name| name.trim_start_matches("lib").to_owned()));
    }
    Ok(all)
}
