//! `devinfo`, the twin of `ibv_devinfo`: the attributes of devices and ports.
//!
//! A part of the text is in the file of its name: [`device`], [`port`]; [`in_sysfs`] is for hosts without libibverbs.

mod codes;
mod device;
mod in_sysfs;
mod port;

use anyhow::{Context as _, bail, ensure};
use rdma_core::doctor::Machine;
use rdma_core::{Context, Device, DeviceList, PortNum};

use crate::cli::Devinfo;
use crate::output::{in_a_line, say, say_json};
use crate::sheet::Sheet;
use crate::source::{self, Unseen};

/// The column of the values of a device, and of a port.
const COLUMNS: [usize; 2] = [40, 48];
const TAB: usize = 8;

/// Prints the devices that libibverbs finds, or where it is absent those of sysfs; and the software device where it is
/// asked for.
pub fn run(flags: &Devinfo) -> anyhow::Result<()> {
    ensure!(flags.port != Some(0), "ports are numbered from 1");
    let machine = source::machine(&flags.common.tree);
    let list = flags.common.tree.root.is_none().then(DeviceList::probe);
    let Some(list) = list.filter(|list| list.library_unavailable().is_none()) else {
        return in_sysfs::run(flags, &machine);
    };
    let soft = source::soft_device(&flags.common.soft);
    let mut devices: Vec<&Device> = list.devices().iter().chain(&soft).collect();
    if let Some(wanted) = &flags.device {
        let names: Vec<_> = devices.iter().map(|device| device.name()).collect();
        let missing = source::no_device(wanted, names.into_iter());
        devices.retain(|device| device.name() == wanted);
        ensure!(!devices.is_empty(), missing);
    }
    if flags.list {
        return print_names(flags, &devices.iter().map(|device| device.name()).collect::<Vec<_>>());
    }
    ensure!(!devices.is_empty(), "{}", list.unavailable().unwrap_or("no RDMA device"));
    let (mut sheets, mut failed) = (Vec::new(), 0);
    for device in devices {
        match of_device(flags, device, &machine) {
            Ok(sheet) => sheets.push(sheet),
            Err(error) => {
                eprintln!("{}", in_a_line(&error));
                failed += 1;
            }
        }
    }
    print(flags, &sheets)?;
    ensure!(failed == 0, "{failed} of the devices did not answer");
    Ok(())
}

fn print_names(flags: &Devinfo, names: &[&str]) -> anyhow::Result<()> {
    if flags.common.format.json {
        return say_json(&names);
    }
    let plural = if names.len() == 1 { "" } else { "s" };
    let lines: String = names.iter().map(|name| format!("\t{name}\n")).collect();
    say(format_args!("{} HCA{plural} found:\n{lines}\n", names.len()))
}

fn print(flags: &Devinfo, sheets: &[Sheet]) -> anyhow::Result<()> {
    if flags.common.format.json {
        return say_json(&sheets);
    }
    say(sheets.iter().map(Sheet::as_text).collect::<String>())
}

fn of_device(flags: &Devinfo, device: &Device, machine: &Machine) -> anyhow::Result<Sheet> {
    let context = device.open().with_context(|| device.name().to_owned())?;
    let details = context.details()?;
    let ports = details.attributes.ports;
    if let Some(port) = flags.port.filter(|port| *port > ports) {
        bail!("{} has no port {port}; it has {ports}", device.name());
    }
    let in_sysfs = machine.device(device.name());
    let mut sheet = Sheet::default();
    let head = device::Head::of(&details, device.name(), in_sysfs);
    device::head(&mut sheet, &head);
    if flags.verbose {
        device::limits(&mut sheet, &details);
        device::offloads(&mut sheet, &details);
    }
    let wanted = (1..=ports).filter(|port| flags.port.is_none_or(|wanted| wanted == *port));
    let ports = wanted.map(|port| of_port(flags, &context, PortNum(port), head.is_infiniband()));
    sheet.sheets("ports", ports.collect::<anyhow::Result<_>>()?);
    Ok(sheet)
}

fn of_port(flags: &Devinfo, context: &Context, port: PortNum, is_infiniband: bool) -> anyhow::Result<Sheet> {
    let details = context.port_details(port)?;
    let mut sheet = Sheet::default();
    port::head(&mut sheet, &port::Head::of(&details));
    if flags.verbose {
        port::more(&mut sheet, &details, is_infiniband);
        let gids = context.gids(port)?;
        port::gids(&mut sheet, gids.iter().map(|row| (row.index, row.gid, row.kind)));
    }
    sheet.text("\n");
    Ok(sheet)
}

/// Adds `<name>: <text>`, the text in the column of a device's values.
fn of_a_device(sheet: &mut Sheet, name: &'static str, value: impl Into<serde_json::Value>, text: &str) {
    sheet.field(name, value, format!("\t{}{text}\n", in_column(name, TAB, COLUMNS[0])));
}

/// Adds `<name>: <text>`, the text in the column of a port's values.
fn of_a_port(sheet: &mut Sheet, name: &'static str, value: impl Into<serde_json::Value>, text: &str) {
    sheet.field(name, value, format!("\t\t\t{}{text}\n", in_column(name, 3 * TAB, COLUMNS[1])));
}

/// Returns `<name>:` and the tabs that lead from there to `column`.
fn in_column(name: &str, indent: usize, column: usize) -> String {
    let end = indent + name.len() + 1;
    let tabs = column.saturating_sub(end).div_ceil(TAB).max(1);
    format!("{name}:{}", "\t".repeat(tabs))
}

#[cfg(test)]
mod tests;
