//! PCI function of a device, the bridges above it, and their access control (ACS).

use std::path::{Path, PathBuf};

use super::tree;
use crate::memory::pinning::{NotKnown, Reading, read_bytes};

/// The PCI function of a device, with the bridges above it.
///
/// A part of [`RdmaDevice`](super::RdmaDevice).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PciFunction {
    /// The address, such as `0000:17:00.0`.
    pub address: String,
    /// The bridges from the root port down to the function.
    pub bridges: Vec<PciBridge>,
    /// The NUMA node (`numa_node`); `None` when the firmware names none.
    pub numa_node: Reading<Option<u32>>,
    /// Whether the function is a virtual one (SR-IOV).
    pub is_virtual: bool,
}

/// A bridge above a PCI function.
///
/// A part of [`PciFunction`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PciBridge {
    /// The address, such as `0000:16:01.0`.
    pub address: String,
    /// The file of its configuration space.
    pub config: PathBuf,
    /// The ACS control register; `None` when the bridge has no ACS.
    ///
    /// Without CAP_SYS_ADMIN the kernel shows the first 64 bytes of the configuration space alone, so the register is
    /// then not known.
    pub acs: Reading<Option<u16>>,
}

/// Longest configuration space in bytes, that of PCI Express.
const CONFIG_BYTES: u64 = 4096;
/// Offset of the first extended capability.
const EXTENDED: usize = 0x100;
/// Identifier of the extended capability of access control.
const ACS: u32 = 0x000d;
/// Bits of the ACS control register that send traffic between peers up to the root: redirect of requests and of
/// completions.
const REDIRECT: u16 = 0b1100;

impl PciFunction {
    /// Reads the function that `device`, a link in sysfs, leads to; `None` for a device that is on no PCI bus.
    pub(super) fn read(root: &Path, device: &Path) -> Reading<Option<Self>> {
        let Some(path) = tree::followed(root, device)? else { return Ok(None) };
        let mut functions: Vec<_> =
            path.ancestors().filter_map(|folder| Some((address(folder)?, folder))).collect();
        functions.reverse();
        let Some((address, folder)) = functions.pop() else { return Ok(None) };
        let bridges = functions.into_iter().map(|(address, folder)| {
            let config = folder.join("config");
            PciBridge { acs: read_acs(&config), address, config }
        });
        Ok(Some(Self {
            bridges: bridges.collect(),
            numa_node: read_numa_node(&folder.join("numa_node")),
            is_virtual: std::fs::symlink_metadata(folder.join("physfn")).is_ok(),
            address,
        }))
    }
}

impl PciBridge {
    /// Returns whether the bridge sends traffic between peers up to the root; `None` when that is not known.
    #[must_use]
    pub fn redirects(&self) -> Option<bool> {
        let acs = self.acs.as_ref().ok()?;
        Some(acs.is_some_and(|control| control & REDIRECT != 0))
    }
}

/// Returns the name of a folder if it is a PCI address: `0000:17:00.0`.
fn address(folder: &Path) -> Option<String> {
    let name = folder.file_name()?.to_str()?;
    let (bus, function) = name.rsplit_once('.')?;
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let parts: Vec<_> = bus.split(':').collect();
    (parts.len() == 3 && parts.iter().copied().all(is_hex) && is_hex(function)).then(|| name.to_owned())
}

/// Reads a number that is -1 where there is none.
fn read_numa_node(file: &Path) -> Reading<Option<u32>> {
    match tree::word(file)?.as_str() {
        "-1" => Ok(None),
        _ => tree::number(file).map(Some),
    }
}

fn read_acs(config: &Path) -> Reading<Option<u16>> {
    let bytes = read_bytes(config, CONFIG_BYTES).map_err(|error| NotKnown::new(config, error))?;
    parse_acs(&bytes).map_err(|why| NotKnown::new(config, why))
}

/// Walks the list of extended capabilities to the control register of ACS.
fn parse_acs(config: &[u8]) -> Result<Option<u16>, String> {
    if config.len() <= EXTENDED {
        let len = config.len();
        return Err(format!(
            "only {len} bytes are visible, the extended capabilities begin behind {EXTENDED}"
        ));
    }
    let mut offset = EXTENDED;
    // Each capability has 8 bytes at least, so a longer walk is a loop.
    for _ in 0..CONFIG_BYTES / 8 {
        let header = word_at(config, offset).ok_or_else(|| format!("cut off at byte {offset}"))?;
        if header & 0xffff == ACS {
            let control =
                word_at(config, offset + 4).ok_or_else(|| format!("cut off at byte {offset}"))? >> 16;
            return Ok(Some(control as u16));
        }
        offset = (header >> 20) as usize;
        if offset < EXTENDED {
            return Ok(None);
        }
    }
    Err("the list of capabilities is a loop".to_owned())
}

/// Returns the little-endian word at an offset.
fn word_at(config: &[u8], offset: usize) -> Option<u32> {
    config.get(offset..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}
