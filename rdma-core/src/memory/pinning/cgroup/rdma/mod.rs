//! Limits of an rdma cgroup for each device, and their use.
//!
//! Parses `rdma.max` and `rdma.current`, which v1 and v2 share. Finding the groups is left to the parent
//! module.

use crate::memory::pinning::reading::{Limit, Quoted, Reading, parse_number, read_as};
use std::fmt;
use std::path::{Path, PathBuf};

pub(super) const MAX_FILE: &str = "rdma.max";

/// An rdma cgroup that the process's verbs objects are charged to.
///
/// # References
///
/// `Documentation/admin-guide/cgroup-v1/rdma.rst` of the kernel
///
/// A part of [`PinningSnapshot`](crate::memory::pinning::PinningSnapshot).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RdmaCgroup {
    /// The file that holds the limits (`rdma.max`); raise them there.
    pub limit_file: PathBuf,
    /// Limits for each device.
    pub max: Reading<Vec<RdmaCounts>>,
    /// Use of each device, by all processes of the group and of the groups below it.
    pub current: Reading<Vec<RdmaCounts>>,
}

/// A line of `rdma.max` or `rdma.current`.
///
/// [`RdmaCgroup`] has both for each device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RdmaCounts {
    /// Name of the device, as in `ibv_devices`.
    pub device: String,
    /// Number of open devices (contexts).
    pub hca_handle: Limit,
    /// Number of objects created on them.
    pub hca_object: Limit,
}

/// A resource that the rdma controller counts.
///
/// The argument of [`RdmaCgroup::usage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RdmaResource {
    /// Open devices; each context counts as one.
    HcaHandle,
    /// Objects; each protection domain, memory region, completion queue, queue pair and so on counts as one.
    HcaObject,
}

/// Prints the kernel's name of the resource.
impl fmt::Display for RdmaResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HcaHandle => "hca_handle",
            Self::HcaObject => "hca_object",
        })
    }
}

impl RdmaCgroup {
    pub(super) fn read(directory: PathBuf) -> Self {
        let counts = |path: &Path| read_as(path, parse);
        let limit_file = directory.join(MAX_FILE);
        Self { max: counts(&limit_file), current: counts(&directory.join("rdma.current")), limit_file }
    }

    /// Returns `(limit, in use)` of one resource of `device`; `None` where there is no limit, or one of both
    /// is not known.
    #[must_use]
    pub fn usage(&self, device: &str, resource: RdmaResource) -> Option<(u64, u64)> {
        let count = |counts: &Reading<Vec<RdmaCounts>>| {
            counts.as_ref().ok()?.iter().find(|line| line.device == device).map(|line| line.count(resource))
        };
        match (count(&self.max)?, count(&self.current)?) {
            (Limit::AtMost(max), Limit::AtMost(current)) => Some((max, current)),
            _ => None,
        }
    }
}

impl RdmaCounts {
    pub(crate) fn count(&self, resource: RdmaResource) -> Limit {
        match resource {
            RdmaResource::HcaHandle => self.hca_handle,
            RdmaResource::HcaObject => self.hca_object,
        }
    }
}

fn parse(text: &str) -> Result<Vec<RdmaCounts>, String> {
    text.lines().map(parse_line).collect()
}

/// Parses `DEVICE hca_handle=N hca_object=N`, where N may be `max`. Resources of later kernels are skipped.
fn parse_line(line: &str) -> Result<RdmaCounts, String> {
    let mut words = line.split_ascii_whitespace();
    let device = words.next().ok_or("a line names no device")?.to_owned();
    let (mut hca_handle, mut hca_object) = (None, None);
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("{} is not NAME=N", Quoted(word)))?;
        let slot = match name {
            "hca_handle" => &mut hca_handle,
            "hca_object" => &mut hca_object,
            _ => continue,
        };
        *slot = Some(if value == "max" { Limit::Unlimited } else { Limit::AtMost(parse_number(value)?) });
    }
    let missing = |name| format!("the line of {} lacks {name}", Quoted(&device));
    let hca_handle = hca_handle.ok_or_else(|| missing("hca_handle"))?;
    let hca_object = hca_object.ok_or_else(|| missing("hca_object"))?;
    Ok(RdmaCounts { device, hca_handle, hca_object })
}

#[cfg(test)]
mod tests;
