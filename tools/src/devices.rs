//! `devices`, the twin of `ibv_devices`: the names of the devices and their GUIDs.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use rdma_core::{Device, DeviceList, SoftOptions};
use serde::Serialize;

use crate::cli::Devices;
use crate::output::{say, say_json};

/// The folder of the kernel that has a folder for each device.
const SYSFS: &str = "/sys/class/infiniband";

/// A row of the list.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Row {
    device: String,
    node_guid: String,
}

/// Prints the devices of this host, and the software device where it is asked for.
pub fn run(flags: &Devices) -> anyhow::Result<()> {
    let list = DeviceList::probe();
    let mut names: Vec<String> = list.devices().iter().map(|device| device.name().to_owned()).collect();
    if list.library_unavailable().is_some() {
        names = in_sysfs(Path::new(SYSFS));
    }
    let mut rows: Vec<Row> = names.into_iter().map(|name| row(Path::new(SYSFS), name)).collect();
    if let Some(address) = flags.soft.address {
        let device = Device::soft(SoftOptions { address, ..SoftOptions::default() });
        rows.push(Row { device: device.name().to_owned(), node_guid: guid("") });
    }
    if flags.format.json { say_json(&rows) } else { say(table(&rows)) }
}

/// Lists the devices that the kernel shows, by name.
fn in_sysfs(root: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn row(root: &Path, device: String) -> Row {
    let text = fs::read_to_string(root.join(&device).join("node_guid")).unwrap_or_default();
    Row { node_guid: guid(&text), device }
}

/// Turns `7c8c:0903:00c3:cfee` into 16 digits; zeros, as `ibv_devices` prints them, where no GUID can be read.
fn guid(text: &str) -> String {
    let digits = text.trim().replace(':', "");
    format!("{:016x}", u64::from_str_radix(&digits, 16).unwrap_or(0))
}

fn table(rows: &[Row]) -> String {
    let mut text = format!("    {:<16}\t   node GUID\n    {:<16}\t{}\n", "device", "------", "-".repeat(16));
    for Row { device, node_guid } in rows {
        // A `String` takes every write.
        let _ = writeln!(text, "    {device:<16}\t{node_guid}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_that_of_ibv_devices() {
        let row = Row { device: "mlx5_0".to_owned(), node_guid: guid("7c8c:0903:00c3:cfee\n") };
        assert_eq!(
            table(&[row]),
            "    device          \t   node GUID\n    ------          \t----------------\n    \
             mlx5_0          \t7c8c090300c3cfee\n"
        );
    }

    #[test]
    fn a_guid_that_does_not_parse_is_zero() {
        for text in ["", "x", "1:0000:0000:0000:0001", "-1"] {
            assert_eq!(guid(text), "0000000000000000", "{text}");
        }
    }

    #[test]
    fn a_host_without_sysfs_has_no_devices() {
        assert!(in_sysfs(Path::new("/nowhere")).is_empty());
    }
}
