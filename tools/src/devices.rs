//! `devices`, the twin of `ibv_devices`: the names of the devices and their GUIDs.

use std::fmt::Write as _;

use rdma_core::DeviceList;
use rdma_core::doctor::Machine;
use serde::Serialize;

use crate::cli::Devices;
use crate::output::{say, say_json};
use crate::source::{self, Unseen};

/// A row of the list.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Row {
    device: String,
    node_guid: String,
}

/// Prints the devices that libibverbs finds, or where it is absent those of sysfs; and the software device where it is
/// asked for.
pub fn run(flags: &Devices) -> anyhow::Result<()> {
    let machine = source::machine(&flags.common.tree);
    let mut unseen = Unseen::default();
    let list = flags.common.tree.root.is_none().then(DeviceList::probe);
    let names: Vec<String> = match list.filter(|list| list.library_unavailable().is_none()) {
        Some(list) => list.devices().iter().map(|device| device.name().to_owned()).collect(),
        None => {
            unseen.take(&machine.devices).into_iter().flatten().map(|device| device.name.clone()).collect()
        }
    };
    let mut rows: Vec<Row> = names.into_iter().map(|name| row(&machine, name, &mut unseen)).collect();
    if let Some(device) = source::soft_device(&flags.common.soft) {
        rows.push(Row { device: device.name().to_owned(), node_guid: digits(None) });
    }
    if flags.common.format.json {
        say_json(&rows)?
    } else {
        say(table(&rows))?
    }
    unseen.end()
}

fn row(machine: &Machine, device: String, unseen: &mut Unseen) -> Row {
    let text = machine.device(&device).and_then(|device| unseen.take(&device.node_guid));
    Row { node_guid: digits(text.map(String::as_str)), device }
}

/// Turns `7c8c:0903:00c3:cfee` into 16 digits; zeros, as `ibv_devices` prints them, where no GUID can be read.
fn digits(guid: Option<&str>) -> String {
    format!("{:016x}", guid.and_then(source::guid).unwrap_or(0))
}

fn table(rows: &[Row]) -> String {
    let mut text = format!("    {:<16}\t   node GUID\n    {:<16}\t{}\n", "device", "------", "-".repeat(16));
    for Row { device, node_guid } in rows {
        // A `String` takes every write.
        let _ = writeln!(text, "    {device:<16}\t{node_guid}");
    }
    text
}
