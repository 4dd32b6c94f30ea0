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
    fn count(&self, resource: RdmaResource) -> Limit {
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
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn limits_and_counts_of_each_device() {
        let counts =
            parse("mlx5_0 hca_handle=2 hca_object=2000 \nrxe0 hca_handle=max hca_object=3 new=1\n").unwrap();
        assert_eq!(counts.len(), 2);
        assert_eq!((counts[0].hca_handle, counts[0].hca_object), (Limit::AtMost(2), Limit::AtMost(2000)));
        assert_eq!((counts[1].hca_handle, counts[1].hca_object), (Limit::Unlimited, Limit::AtMost(3)));
        assert_eq!(parse(""), Ok(vec![]));
    }

    #[test]
    fn a_line_that_does_not_tell_all_is_refused() {
        for text in ["rxe0", "rxe0 hca_handle=1", "rxe0 hca_handle=1 hca_object=", "rxe0 hca_object", " \n"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn usage_is_of_the_device_asked_for_and_only_where_limited() {
        let counts = |text| parse(text).map_err(|_| unreachable!());
        let group = RdmaCgroup {
            limit_file: PathBuf::new(),
            max: counts("a hca_handle=max hca_object=3\nab hca_handle=1 hca_object=1\n"),
            current: counts("a hca_handle=9 hca_object=2\n"),
        };
        assert_eq!(group.usage("a", RdmaResource::HcaObject), Some((3, 2)));
        assert_eq!(group.usage("a", RdmaResource::HcaHandle), None);
        assert_eq!(group.usage("ab", RdmaResource::HcaObject), None);
        assert_eq!(group.usage("b", RdmaResource::HcaObject), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..99), tail in "\\PC*") {
            let _ = parse(&String::from_utf8_lossy(&bytes));
            let _ = parse(&format!("rxe0 hca_handle={tail} hca_object={tail}"));
        }

        #[test]
        fn lines_round_trip(device in "[a-z0-9_]{1,16}", handle: u64, object: u64) {
            let counts = parse(&format!("{device} hca_handle={handle} hca_object={object} \n")).unwrap();
            let expected = (device, Limit::AtMost(handle), Limit::AtMost(object));
            prop_assert_eq!((counts[0].device.clone(), counts[0].hca_handle, counts[0].hca_object), expected);
        }
    }
}
