//! `netdevs`, the twin of `ibdev2netdev`: the network interface of each port.

use rdma_core::doctor::{Machine, Netdev, Port, RdmaDevice};
use rdma_core::{Context, LinkLayer, PortNum};
use serde::Serialize;

use crate::cli::Netdevs;
use crate::output::{say, say_json};
use crate::source::{self, Unseen};

/// The state of a thing that cannot be read.
const UNKNOWN: &str = "NA";
/// The shortest run of letters in a VPD that counts, as for `strings(1)`.
const WORD_MIN: usize = 4;

/// A port with its interface.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Row {
    device: String,
    port: u8,
    /// `None` where no interface of this network namespace belongs to the port.
    netdev: Option<String>,
    state: &'static str,
    #[serde(flatten)]
    more: Option<More>,
}

/// Fields that `-v` adds.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct More {
    pci: String,
    part: String,
    part_number: String,
    description: String,
    firmware: String,
    port_state: String,
}

/// Prints a line for each port that has an interface, sorted as `ls` sorts names.
pub fn run(flags: &Netdevs) -> anyhow::Result<()> {
    let machine = source::machine(&flags.common.tree);
    let soft = source::soft_context(&flags.common.soft, None)?;
    let mut unseen = Unseen::default();
    let mut rows = Vec::new();
    for device in source::devices(&machine, None, soft.is_some())? {
        for port in unseen.take(&device.ports).into_iter().flatten() {
            let more = flags.verbose.then(|| more(device, port));
            rows.push(row(&machine, device, port, more));
        }
    }
    if let Some(context) = &soft {
        rows.push(of_soft(context)?);
    }
    if flags.common.format.json {
        say_json(&rows)?;
    } else {
        say(rows.iter().filter_map(in_a_line).collect::<String>())?;
        for Row { device, port, .. } in rows.iter().filter(|row| row.netdev.is_none()) {
            eprintln!("{device} port {port} has no interface in this network namespace");
        }
    }
    unseen.end()
}

fn row(machine: &Machine, device: &RdmaDevice, port: &Port, more: Option<More>) -> Row {
    let by_address = matches!(port.link_layer, Ok(LinkLayer::INFINIBAND));
    let first = port.gids.as_ref().ok().and_then(|table| table.get(0));
    let named = match first {
        Some(row) if by_address => by_guid(machine, row.gid.0),
        Some(row) => row.netdev.clone(),
        None => None,
    };
    let netdev = named.or_else(|| machine.netdev_of(device, port).map(|netdev| netdev.name.clone()));
    let state = netdev.as_ref().and_then(|name| machine.netdev(name)).map_or(UNKNOWN, state);
    Row { device: device.name.clone(), port: port.number.0, netdev, state, more }
}

fn of_soft(context: &Context) -> anyhow::Result<Row> {
    let netdev = context.gids(PortNum(1))?.into_iter().find_map(|entry| entry.netdev);
    let state = if netdev.is_some() { "Up" } else { UNKNOWN };
    Ok(Row { device: context.name().to_owned(), port: 1, netdev, state, more: None })
}

/// Returns the interface whose hardware address ends in the GUID of a port of InfiniBand. Interfaces of partitions have
/// that address too; their names are longer, so they come later.
fn by_guid(machine: &Machine, gid: [u8; 16]) -> Option<String> {
    let guid: Vec<_> = gid.iter().skip(8).map(|byte| format!("{byte:02x}")).collect();
    let end = format!(":{}", guid.join(":"));
    let has_address = |netdev: &&Netdev| {
        source::text(&netdev.folder.join("address")).is_some_and(|address| address.ends_with(&end))
    };
    machine.netdevs.as_ref().ok()?.iter().find(has_address).map(|netdev| netdev.name.clone())
}

/// The carrier, which cannot be read while the interface is down.
fn state(netdev: &Netdev) -> &'static str {
    let carrier = netdev.folder.join("carrier");
    match source::text(&carrier).as_deref() {
        Some("1") => "Up",
        None if !carrier.exists() => UNKNOWN,
        _ => "Down",
    }
}

fn more(device: &RdmaDevice, port: &Port) -> More {
    let vpd = source::bytes(&device.folder.join("device/vpd"));
    let words = vpd.as_deref().map(words);
    let pci = device.pci.as_ref().ok().and_then(Option::as_ref).map(|pci| pci.address.clone());
    More {
        pci: pci.unwrap_or_default(),
        part: device.part.as_ref().map_or(UNKNOWN.to_owned(), |part| format!("MT{part}")),
        part_number: match &words {
            Some(words) => part_number(words),
            None => UNKNOWN.to_owned(),
        },
        description: words.as_ref().and_then(|words| words.first()).cloned().unwrap_or_default(),
        firmware: device.fw_ver.clone().unwrap_or(UNKNOWN.to_owned()),
        port_state: port.state.as_ref().map_or(UNKNOWN.to_owned(), |state| state.name.clone()),
    }
}

/// The first word of the fourth line, or of the last one where there are fewer.
fn part_number(words: &[String]) -> String {
    let line = words.iter().take(4).next_back().map_or("", String::as_str);
    line.split_ascii_whitespace().next().unwrap_or("").to_owned()
}

/// Returns the runs of printable letters, as `strings(1)` does.
fn words(bytes: &[u8]) -> Vec<String> {
    bytes
        .split(|byte| !matches!(byte, b' '..=b'~' | b'\t'))
        .filter(|run| run.len() >= WORD_MIN)
        .map(|run| String::from_utf8_lossy(run).into_owned())
        .collect()
}

fn in_a_line(row: &Row) -> Option<String> {
    let Row { device, port, netdev, state, more } = row;
    let netdev = netdev.as_ref()?;
    let Some(More { pci, part, part_number, description, firmware, port_state }) = more else {
        return Some(format!("{device} port {port} ==> {netdev} ({state})\n"));
    };
    // Without a VPD neither column is padded.
    let [description, part_number] = match part_number.as_str() {
        UNKNOWN => [description.clone(), part_number.clone()],
        _ => [format!("{description:<15}"), format!("{part_number:<11}")],
    };
    Some(format!(
        "{pci} {device} ({part} - {part_number}) {description} fw {firmware} port {port} ({port_state:<6}) \
         ==> {netdev} ({state})\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_vpd_are_its_runs_of_four_letters() {
        let vpd = b"\x82\x08\x00ConnectX\x90\x21\x00PN\x05MCX75EC\x06A1SN\x0cMT2245X01234V3\x20";
        let words = words(vpd);
        assert_eq!(words, ["ConnectX", "MCX75EC", "A1SN", "MT2245X01234V3 "]);
        assert_eq!(part_number(&words), "MT2245X01234V3");
        assert_eq!(part_number(&[]), "");
    }
}
