//! Sources of the tools that list devices: the files of a machine, and the software device.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{anyhow, bail};
use rdma_core::doctor::{Machine, RdmaDevice};
use rdma_core::memory::pinning::{NotKnown, Reading};
use rdma_core::{Context, Device, SoftOptions};
use rustix::fs::{Mode, OFlags};

use crate::cli::{Soft, Tree};

/// The most bytes of a file that is read: the kernel's files of text have a page, and a VPD 32 KiB.
const BYTES_MAX: u64 = 32 << 10;

/// Reads the machine that the flags name.
pub fn machine(tree: &Tree) -> Machine {
    Machine::read(tree.root.as_deref().unwrap_or(Path::new("/")))
}

/// Returns the software device, if it is asked for.
pub fn soft_device(soft: &Soft) -> Option<Device> {
    let address = soft.address?;
    Some(Device::soft(SoftOptions { address, ..SoftOptions::default() }))
}

/// Opens the software device, if it is asked for, and `wanted` is no other.
pub fn soft_context(soft: &Soft, wanted: Option<&str>) -> anyhow::Result<Option<Context>> {
    match soft_device(soft) {
        Some(device) if wanted.is_none_or(|name| name == device.name()) => Ok(Some(device.open()?)),
        _ => Ok(None),
    }
}

/// Returns the device called `wanted`, or all devices, by name as `ls` sorts them.
///
/// # Errors
///
/// When there is none, unless the software device takes part.
pub fn devices<'a>(
    machine: &'a Machine,
    wanted: Option<&str>,
    has_soft: bool,
) -> anyhow::Result<Vec<&'a RdmaDevice>> {
    let all = match &machine.devices {
        Ok(all) => all,
        Err(_) if has_soft => return Ok(Vec::new()),
        Err(unknown) => bail!("the devices are {unknown}"),
    };
    let mut taken: Vec<_> =
        all.iter().filter(|device| wanted.is_none_or(|name| device.name == name)).collect();
    taken.sort_by(|left, right| left.name.cmp(&right.name));
    match wanted {
        _ if has_soft || !taken.is_empty() => Ok(taken),
        None => bail!(
            "the kernel has no RDMA device: load the driver of the NIC; --soft takes the software device"
        ),
        Some(wanted) => Err(no_device(wanted, all.iter().map(|device| device.name.as_str()))),
    }
}

/// The error about a device that is not there.
pub fn no_device<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> anyhow::Error {
    match names.collect::<Vec<_>>().join(", ") {
        there if there.is_empty() => anyhow!("no RDMA device {wanted}, and no other"),
        there => anyhow!("no RDMA device {wanted}; there are {there}"),
    }
}

/// Reads a small file; `None` where it cannot be read.
pub fn bytes(file: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    // Without NONBLOCK, a pipe in a tree that is no sysfs would wait for a writer.
    let file =
        rustix::fs::open(file, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok()?;
    File::from(file).take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Reads a small file of text, without blanks around it; `None` where it cannot be read.
pub fn text(file: &Path) -> Option<String> {
    Some(String::from_utf8_lossy(&bytes(file)?).trim().to_owned())
}

/// Turns `7c8c:0903:00c3:cfee` into a number.
pub fn guid(text: &str) -> Option<u64> {
    let groups: Vec<_> = text.split(':').collect();
    let is_group = |group: &&str| group.len() == 4 && group.bytes().all(|letter| letter.is_ascii_hexdigit());
    let is_guid = groups.len() == 4 && groups.iter().all(is_group);
    if is_guid { u64::from_str_radix(&groups.concat(), 16).ok() } else { None }
}

/// Values that could not be read, for an error behind the output.
#[derive(Debug, Default)]
pub struct Unseen(Vec<NotKnown>);

impl Unseen {
    /// Returns a value that could be read.
    pub fn take<'a, T>(&mut self, reading: &'a Reading<T>) -> Option<&'a T> {
        reading.as_ref().inspect_err(|unknown| self.note(unknown)).ok()
    }

    /// Notes a value that could not be read.
    pub fn note(&mut self, unknown: &NotKnown) {
        self.0.push(unknown.clone());
    }

    /// Says which values could not be read.
    ///
    /// # Errors
    ///
    /// When there is one.
    pub fn end(self) -> anyhow::Result<()> {
        self.0.iter().for_each(|unknown| eprintln!("{unknown}"));
        match self.0.len() {
            0 => Ok(()),
            1 => bail!("a value could not be read, and is left out"),
            more => bail!("{more} values could not be read, and are left out"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_is_four_groups_of_four_digits() {
        assert_eq!(guid("7c8c:0903:00c3:cfee"), Some(0x7c8c_0903_00c3_cfee));
        for wrong in
            ["", "x", "1:0000:0000:0000:0001", "7c8c:0903:00c3", "+c8c:0903:00c3:cfee", "7c8c090300c3cfee"]
        {
            assert_eq!(guid(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_named_with_those_that_are() {
        let error = |names: &[&'static str]| no_device("mlx5_bond_0", names.iter().copied()).to_string();
        assert_eq!(error(&["mlx5_0", "mlx5_1"]), "no RDMA device mlx5_bond_0; there are mlx5_0, mlx5_1");
        assert_eq!(error(&[]), "no RDMA device mlx5_bond_0, and no other");
    }
}
