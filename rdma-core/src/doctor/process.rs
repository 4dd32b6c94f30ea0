//! Limits of the calling thread that have nothing to do with pinning: descriptors and processors.

use std::fmt;
use std::path::{Path, PathBuf};

use super::tree;
use crate::memory::pinning::{Limit, Quoted, Reading, parse_number, read_as};

/// Limits of the process; those on pinning are in [`Machine::pinning`](super::Machine::pinning).
///
/// A part of [`Machine`](super::Machine).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Process {
    /// The folder in procfs, `/proc/thread-self`.
    pub folder: PathBuf,
    /// The number of descriptors that the process may have (RLIMIT_NOFILE, soft).
    pub open_files_max: Reading<Limit>,
    /// The number of descriptors that the process has.
    pub open_files: Reading<u64>,
    /// The processors that the thread may run on (`Cpus_allowed_list`).
    pub cpus: Reading<Cpus>,
}

/// A set of processors.
///
/// A part of [`Process`] and of [`NumaNode`](super::NumaNode). `Display` prints it as the kernel does: `0-31,64`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cpus(Vec<(u32, u32)>);

/// The most ranges of a list of processors: the kernel has no more processors (NR_CPUS).
const RANGES_MAX: usize = 8192;

impl Process {
    pub(super) fn read(folder: PathBuf) -> Self {
        Self {
            open_files_max: read_as(&folder.join("limits"), parse_open_files),
            open_files: tree::count(&folder.join("fd")),
            cpus: read_as(&folder.join("status"), parse_allowed),
            folder,
        }
    }
}

impl Cpus {
    /// Reads a file that holds such a list.
    pub(super) fn read(file: &Path) -> Reading<Self> {
        read_as(file, Self::parse)
    }

    /// Parses `0-31,64`; the empty text is the empty set.
    fn parse(text: &str) -> Result<Self, String> {
        let ranges = text.trim().split(',').filter(|range| !range.is_empty()).map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text| {
                u32::try_from(parse_number(text)?).map_err(|_| format!("{} is too large", Quoted(text)))
            };
            let (first, last) = (number(first)?, number(last)?);
            if first <= last { Ok((first, last)) } else { Err(format!("{} is no range", Quoted(range))) }
        });
        let ranges = ranges.take(RANGES_MAX + 1).collect::<Result<Vec<_>, String>>()?;
        if ranges.len() > RANGES_MAX {
            return Err(format!("more than {RANGES_MAX} ranges of processors"));
        }
        Ok(Self(ranges))
    }

    /// Returns whether the two sets have a processor in common.
    #[must_use]
    pub fn meet(&self, other: &Self) -> bool {
        self.0.iter().any(|(first, last)| other.0.iter().any(|(begin, end)| first <= end && begin <= last))
    }

    /// Returns whether the set has no processor.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
        }
        Ok(())
    }
}

/// Parses the soft limit from the line `Max open files` of `limits`.
fn parse_open_files(text: &str) -> Result<Limit, String> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"));
    match line.ok_or("no line `Max open files`")?.split_ascii_whitespace().next() {
        Some("unlimited") => Ok(Limit::Unlimited),
        Some(number) => parse_number(number).map(Limit::AtMost),
        None => Err("the line `Max open files` ends early".to_owned()),
    }
}

fn parse_allowed(text: &str) -> Result<Cpus, String> {
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    Cpus::parse(list.ok_or("no line `Cpus_allowed_list:`")?)
}
