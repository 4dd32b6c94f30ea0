//! `stat`, the twin of `ibstat`: the state of devices and ports.

use anyhow::bail;
use rdma_core::doctor::{Port, RdmaDevice};
use rdma_core::{Context, Gid, PortDetails, PortNum};

use crate::cli::Stat;
use crate::output::{say, say_json};
use crate::sheet::Sheet;
use crate::source::{self, Unseen};

const NODE_TYPES: [&str; 5] = ["???", "CA", "Switch", "Router", "iWARP RNIC"];
const STATES: [&str; 5] = ["???", "Down", "Initializing", "Armed", "Active"];
const PHYSICAL_STATES: [&str; 8] = [
    "No state change",
    "Sleep",
    "Polling",
    "Disabled",
    "PortConfigurationTraining",
    "LinkUp",
    "LinkErrorRecovery",
    "PhyTest",
];
/// The types of node that are listed: those of InfiniBand and RoCE.
const LISTED: std::ops::RangeInclusive<u32> = 1..=3;

/// Prints the devices, and the software device where it is asked for.
pub fn run(flags: &Stat) -> anyhow::Result<()> {
    let machine = source::machine(&flags.common.tree);
    let wanted = flags.device.as_deref();
    let soft = source::soft_context(&flags.common.soft, wanted)?;
    let mut unseen = Unseen::default();
    let mut devices = source::devices(&machine, wanted, soft.is_some())?;
    devices.retain(|device| unseen.take(&device.node_type).is_some_and(|kind| LISTED.contains(&kind.code)));
    if flags.list {
        let names = devices.iter().map(|device| device.name.as_str());
        let names: Vec<_> = names.chain(soft.as_ref().map(Context::name)).collect();
        if flags.common.format.json {
            say_json(&names)?
        } else {
            say(in_lines(&names))?
        }
        return unseen.end();
    }
    if flags.port_list {
        let ports = devices.iter().flat_map(|device| unseen.take(&device.ports).into_iter().flatten());
        let ports: Vec<_> = ports.collect();
        let mut guids: Vec<_> = ports.into_iter().filter_map(|port| port_guid(port, &mut unseen)).collect();
        guids.extend(soft.as_ref().map(soft_guid).transpose()?);
        let guids: Vec<_> =
            guids.into_iter().filter(|guid| *guid != 0).map(|guid| format!("0x{guid:016x}")).collect();
        if flags.common.format.json {
            say_json(&guids)?
        } else {
            say(in_lines(&guids))?
        }
        return unseen.end();
    }
    let mut sheets = Vec::new();
    for device in devices {
        sheets.push(of_device(flags, device, &mut unseen)?);
    }
    if let Some(context) = &soft {
        sheets.push(of_soft(flags, context)?);
    }
    if flags.common.format.json {
        say_json(&sheets)?;
    } else {
        say(sheets.iter().map(Sheet::as_text).collect::<String>())?;
    }
    unseen.end()
}

fn in_lines(words: &[impl AsRef<str>]) -> String {
    words.iter().flat_map(|word| [word.as_ref(), "\n"]).collect()
}

/// A line of a device: `<name>: <value>`, behind `indent`.
fn line(sheet: &mut Sheet, indent: &str, name: &'static str, value: impl Into<serde_json::Value> + ToString) {
    let text = value.to_string();
    sheet.field(name, value, format!("{indent}{name}: {text}\n"));
}

fn of_device(flags: &Stat, device: &RdmaDevice, unseen: &mut Unseen) -> anyhow::Result<Sheet> {
    let code = device.node_type.as_ref().map_or(0, |kind| kind.code);
    let kind = name_of(&NODE_TYPES, code);
    let none = Vec::new();
    let ports = unseen.take(&device.ports).unwrap_or(&none);
    let last = ports.iter().map(|port| port.number.0).max().unwrap_or(0);
    let mut sheet = Sheet::default();
    if let (Some(number), false) = (flags.port, flags.short) {
        let Some(port) = ports.iter().find(|port| port.number.0 == number) else {
            bail!("{kind}: '{}' has no port number {number} - max ({last})", device.name);
        };
        sheet.field("name", device.name.as_str(), format!("{kind}: '{}'\n", device.name));
        sheet.sheets("ports", vec![of_port(port, "", "", unseen)]);
        return Ok(sheet);
    }
    sheet.field("name", device.name.as_str(), format!("{kind} '{}'\n", device.name));
    // A device without one of these words has an empty one, as on soft-RoCE.
    let hca_type = device.hca_type.as_ref().ok().and_then(Option::as_deref).unwrap_or("");
    let [fw_ver, hw_rev] = [&device.fw_ver, &device.hw_rev].map(|word| word.as_deref().unwrap_or(""));
    sheet.field("type", hca_type, format!("\t{kind} type: {hca_type}\n"));
    line(&mut sheet, "\t", "Number of ports", last);
    line(&mut sheet, "\t", "Firmware version", fw_ver);
    line(&mut sheet, "\t", "Hardware version", hw_rev);
    for (name, guid) in [("Node GUID", &device.node_guid), ("System image GUID", &device.sys_image_guid)] {
        if let Some(guid) = unseen.take(guid).and_then(|text| source::guid(text)) {
            line(&mut sheet, "\t", name, format!("0x{guid:016x}"));
        }
    }
    if !flags.short {
        sheet.sheets("ports", ports.iter().map(|port| of_port(port, "\t", "\t\t", unseen)).collect());
    }
    Ok(sheet)
}

fn of_port(port: &Port, head: &str, indent: &str, unseen: &mut Unseen) -> Sheet {
    let mut sheet = Sheet::default();
    sheet.field("port", port.number.0, format!("{head}Port {}:\n", port.number.0));
    if let Some(state) = unseen.take(&port.state) {
        line(&mut sheet, indent, "State", name_of(&STATES, state.code));
    }
    if let Some(state) = unseen.take(&port.phys_state) {
        line(&mut sheet, indent, "Physical state", name_of(&PHYSICAL_STATES, state.code));
    }
    if let Some(rate) = unseen.take(&port.rate) {
        line(&mut sheet, indent, "Rate", short_rate(rate));
    }
    for (name, value) in [("Base lid", &port.lid), ("LMC", &port.lmc), ("SM lid", &port.sm_lid)] {
        if let Some(value) = unseen.take(value) {
            line(&mut sheet, indent, name, *value);
        }
    }
    if let Some(mask) = unseen.take(&port.cap_mask) {
        line(&mut sheet, indent, "Capability mask", format!("0x{mask:08x}"));
    }
    if let Some(guid) = port_guid(port, unseen) {
        line(&mut sheet, indent, "Port GUID", format!("0x{guid:016x}"));
    }
    let link_layer = port.link_layer.as_ref().map_or("IB".to_owned(), ToString::to_string);
    line(&mut sheet, indent, "Link layer", link_layer);
    sheet
}

fn of_soft(flags: &Stat, context: &Context) -> anyhow::Result<Sheet> {
    let details = context.details()?;
    let port = context.port_details(PortNum(flags.port.unwrap_or(1)))?;
    let guid = soft_guid(context)?;
    let mut sheet = Sheet::default();
    if flags.port.is_some() && !flags.short {
        sheet.field("name", context.name(), format!("CA: '{}'\n", context.name()));
        sheet.sheets("ports", vec![soft_port(&port, guid, "", "")]);
        return Ok(sheet);
    }
    sheet.field("name", context.name(), format!("CA '{}'\n", context.name()));
    sheet.field("type", "", "\tCA type: \n");
    line(&mut sheet, "\t", "Number of ports", details.attributes.ports);
    line(&mut sheet, "\t", "Firmware version", details.attributes.firmware);
    line(&mut sheet, "\t", "Hardware version", "");
    line(&mut sheet, "\t", "Node GUID", format!("0x{:016x}", details.node_guid));
    line(&mut sheet, "\t", "System image GUID", format!("0x{:016x}", details.sys_image_guid));
    if !flags.short {
        sheet.sheets("ports", vec![soft_port(&port, guid, "\t", "\t\t")]);
    }
    Ok(sheet)
}

fn soft_port(port: &PortDetails, guid: u64, head: &str, indent: &str) -> Sheet {
    let mut sheet = Sheet::default();
    let attributes = &port.attributes;
    sheet.field("port", attributes.port.0, format!("{head}Port {}:\n", attributes.port.0));
    line(&mut sheet, indent, "State", name_of(&STATES, attributes.state.0));
    line(&mut sheet, indent, "Base lid", attributes.lid.0);
    line(&mut sheet, indent, "LMC", port.lmc);
    line(&mut sheet, indent, "SM lid", port.sm_lid);
    line(&mut sheet, indent, "Capability mask", format!("0x{:08x}", port.cap_flags));
    line(&mut sheet, indent, "Port GUID", format!("0x{guid:016x}"));
    line(&mut sheet, indent, "Link layer", attributes.link_layer.to_string());
    sheet
}

/// Returns the GUID of a port: the second half of its first GID, and 0 where that entry is empty.
fn port_guid(port: &Port, unseen: &mut Unseen) -> Option<u64> {
    let table = unseen.take(&port.gids)?;
    if let Some((_, unknown)) = table.unread.iter().find(|(index, _)| *index == 0) {
        unseen.note(unknown);
        return None;
    }
    Some(table.get(0).map_or(0, |row| second_half(row.gid)))
}

fn soft_guid(context: &Context) -> anyhow::Result<u64> {
    let gids = context.gids(PortNum(1))?;
    Ok(gids.first().map_or(0, |entry| second_half(entry.gid)))
}

fn second_half(gid: Gid) -> u64 {
    // The upper half falls away.
    u128::from_be_bytes(gid.0) as u64
}

fn name_of(names: &[&'static str], code: u32) -> &'static str {
    usize::try_from(code).ok().and_then(|code| names.get(code)).copied().unwrap_or("???")
}

/// Turns `200 Gb/sec (4X HDR)` into `200`, and the slowest rate of InfiniBand into `2.5`.
fn short_rate(rate: &str) -> String {
    let digits: String = rate.chars().take_while(char::is_ascii_digit).collect();
    let is_fdr10 =
        rate.split_once(')').is_some_and(|(speed, _)| speed.to_ascii_lowercase().ends_with("fdr10"));
    match digits.as_str() {
        digits if is_fdr10 => format!("{digits} (FDR10)"),
        "2" => "2.5".to_owned(),
        "" => "0".to_owned(),
        digits => digits.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_its_number() {
        for (rate, short) in [
            ("200 Gb/sec (4X HDR)", "200"),
            ("2.5 Gb/sec (1X SDR)", "2.5"),
            ("10 Gb/sec (4X SDR)", "10"),
            ("40 Gb/sec (4X FDR10)", "40 (FDR10)"),
            ("fast", "0"),
        ] {
            assert_eq!(short_rate(rate), short);
        }
    }

    #[test]
    fn a_state_that_has_no_name_is_question_marks() {
        assert_eq!([1, 4, 5, u32::MAX].map(|code| name_of(&STATES, code)), ["Down", "Active", "???", "???"]);
    }
}
