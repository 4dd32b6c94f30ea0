//! Parts of the system beside the devices: NUMA nodes, `/dev/shm`, and the way to the memory of GPUs.

use std::path::{Path, PathBuf};

use super::process::Cpus;
use super::tree;
use crate::memory::pinning::{NotKnown, Quoted, Reading, parse_kib, parse_number, read_as};

/// A NUMA node.
///
/// A part of [`Machine`](super::Machine).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NumaNode {
    /// The number of the node.
    pub number: u32,
    /// The processors of the node (`cpulist`).
    pub cpus: Reading<Cpus>,
}

/// The file system at `/dev/shm`, in which processes of a host share memory by name.
///
/// A part of [`Machine`](super::Machine).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shm {
    /// The file that the size stands in.
    pub file: PathBuf,
    /// The size in bytes: `size=` of the mount, or half of the memory for a mount that names none.
    pub size_bytes: u64,
}

/// Modules and files by which a NIC reaches the memory of GPUs.
///
/// A part of [`Machine`](super::Machine).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GpuMemory {
    /// The folder of the kernel's modules, `/sys/module`.
    pub folder: PathBuf,
    /// Whether the module `nvidia` is loaded.
    pub nvidia: Reading<bool>,
    /// Whether the module `amdgpu` is loaded.
    pub amdgpu: Reading<bool>,
    /// Whether `nvidia_peermem`, or its forerunner `nv_peer_mem`, is loaded.
    pub peermem: Reading<bool>,
    /// Whether the module `nvidia` is the open one, which alone hands out dma-bufs (`/proc/driver/nvidia/version`).
    pub nvidia_is_open: Reading<bool>,
    /// The kernel's version, first and second number (`/proc/sys/kernel/osrelease`).
    pub kernel: Reading<(u32, u32)>,
}

/// First kernel that registers dma-bufs.
const DMABUF_KERNEL: (u32, u32) = (5, 12);

impl NumaNode {
    pub(super) fn read_all(folder: &Path) -> Reading<Vec<Self>> {
        let numbered = tree::names(folder)?.into_iter().filter_map(|name| {
            let number = name.strip_prefix("node")?.parse().ok()?;
            Some(Self { number, cpus: Cpus::read(&folder.join(name).join("cpulist")) })
        });
        Ok(numbered.collect())
    }
}

impl Shm {
    /// Reads the size from the mounts of the process, so that any tree can have one.
    pub(super) fn read(root: &Path, process: &Path) -> Reading<Self> {
        let file = process.join("mountinfo");
        let size = read_as(&file, parse_mount)?;
        let size_bytes = match size {
            Some(size) => size,
            None => read_as(&root.join("proc/meminfo"), |text| parse_kib(text, "MemTotal:"))? / 2,
        };
        Ok(Self { file, size_bytes })
    }
}

/// Returns the size of the last mount at `/dev/shm`, which hides earlier ones; `None` for a mount without a size.
fn parse_mount(text: &str) -> Result<Option<u64>, String> {
    let options = text.lines().rev().find_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        (mount.split(' ').nth(4)? == "/dev/shm").then(|| file_system.rsplit(' ').next())?
    });
    let options = options.ok_or("nothing is mounted at /dev/shm")?;
    let Some(size) = options.split(',').find_map(|option| option.strip_prefix("size=")) else {
        return Ok(None);
    };
    let units = [("k", 1_u64 << 10), ("m", 1 << 20), ("g", 1 << 30), ("", 1)];
    let (number, unit) = units
        .iter()
        .find_map(|(letter, unit)| Some((size.strip_suffix(letter)?, unit)))
        .ok_or_else(|| format!("{} is no size", Quoted(size)))?;
    Ok(Some(parse_number(number)?.saturating_mul(*unit)))
}

impl GpuMemory {
    pub(super) fn read(root: &Path) -> Self {
        let folder = root.join("sys/module");
        let there = |name: &str| {
            // Without the folder of all modules, the absence of one means nothing.
            std::fs::metadata(&folder).map_err(|error| NotKnown::new(&folder, error))?;
            tree::exists(&folder.join(name))
        };
        Self {
            nvidia: there("nvidia"),
            amdgpu: there("amdgpu"),
            peermem: match there("nvidia_peermem") {
                Ok(false) => there("nv_peer_mem"),
                other => other,
            },
            nvidia_is_open: tree::word(&root.join("proc/driver/nvidia/version"))
                .map(|version| version.contains("Open Kernel Module")),
            kernel: read_as(&root.join("proc/sys/kernel/osrelease"), parse_kernel),
            folder,
        }
    }

    /// Returns whether a NIC can reach the memory of NVIDIA's GPUs, by either way; `None` when that is not known.
    #[must_use]
    pub fn reaches_nvidia(&self) -> Option<bool> {
        let by_dmabuf = match (&self.nvidia_is_open, &self.kernel) {
            (Ok(true), Ok(kernel)) => Some(*kernel >= DMABUF_KERNEL),
            (Ok(false), _) => Some(false),
            (_, Ok(kernel)) if *kernel < DMABUF_KERNEL => Some(false),
            _ => None,
        };
        match (self.peermem.as_ref().ok(), by_dmabuf) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        }
    }
}

/// Parses the first two numbers of `6.1.0-18-amd64`.
fn parse_kernel(text: &str) -> Result<(u32, u32), String> {
    let mut numbers = text.trim().split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(first)), Some(Ok(second))) => Ok((first, second)),
        _ => Err(format!("{} is no version", Quoted(text.trim()))),
    }
}
