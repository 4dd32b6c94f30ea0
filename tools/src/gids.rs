//! `gids`, the twin of `show_gids`: the filled entries of the GID tables.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use rdma_core::doctor::{Port, RdmaDevice};
use rdma_core::{Context, Gid, PortNum};
use serde::Serialize;

use crate::cli::Gids;
use crate::output::{say, say_json};
use crate::source::{self, Unseen};

const HEAD: &str = "\
DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV
---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---
";

/// An entry of a GID table.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Row {
    device: String,
    port: u8,
    index: u32,
    gid: String,
    ipv4: Option<String>,
    version: Option<String>,
    netdev: Option<String>,
}

/// Prints the filled entries, by device, port and index, each sorted as `ls` sorts names: 10 comes before 2.
pub fn run(flags: &Gids) -> anyhow::Result<()> {
    let machine = source::machine(&flags.common.tree);
    let wanted = flags.device.as_deref();
    let soft = source::soft_context(&flags.common.soft, wanted)?;
    let mut unseen = Unseen::default();
    let mut rows = Vec::new();
    for device in source::devices(&machine, wanted, soft.is_some())? {
        let mut ports: Vec<_> = unseen.take(&device.ports).into_iter().flatten().collect();
        ports.sort_by_key(|port| port.number.0.to_string());
        for port in ports.into_iter().filter(|port| flags.port.is_none_or(|number| port.number.0 == number)) {
            rows.extend(of_port(device, port, &mut unseen));
        }
    }
    if let Some(context) = &soft {
        rows.extend(of_soft(context)?);
    }
    if flags.common.format.json {
        say_json(&rows)?
    } else {
        say(table(&rows))?
    }
    unseen.end()
}

fn of_port(device: &RdmaDevice, port: &Port, unseen: &mut Unseen) -> Vec<Row> {
    let Some(table) = unseen.take(&port.gids) else { return Vec::new() };
    table.unread.iter().for_each(|(_, unknown)| unseen.note(unknown));
    let mut rows: Vec<_> = table.rows.iter().filter(|row| !is_prefix_alone(row.gid)).collect();
    rows.sort_by_key(|row| row.index.to_string());
    let kinds = port.folder.join("gid_attrs/types");
    rows.into_iter()
        .map(|row| Row {
            device: device.name.clone(),
            port: port.number.0,
            index: row.index,
            gid: long(row.gid),
            ipv4: ipv4(row.gid),
            version: source::text(&kinds.join(row.index.to_string())).and_then(|kind| version(&kind)),
            netdev: row.netdev.clone(),
        })
        .collect()
}

fn of_soft(context: &Context) -> anyhow::Result<Vec<Row>> {
    let entries = context.gids(PortNum(1))?;
    Ok(entries
        .into_iter()
        .map(|entry| Row {
            device: context.name().to_owned(),
            port: 1,
            index: entry.index,
            gid: long(entry.gid),
            ipv4: ipv4(entry.gid),
            version: version(&entry.kind.to_string()),
            netdev: entry.netdev,
        })
        .collect())
}

fn table(rows: &[Row]) -> String {
    let mut text = HEAD.to_owned();
    for row in rows {
        let Row { device, port, index, gid, .. } = row;
        let ipv4 = row.ipv4.as_ref().map_or("\t".to_owned(), |ipv4| format!("{ipv4}  "));
        let [version, netdev] = [&row.version, &row.netdev].map(|word| word.as_deref().unwrap_or(""));
        // A `String` takes every write.
        let _ = writeln!(text, "{device}\t{port}\t{index}\t{gid}\t{ipv4}\t{version}\t{netdev}");
    }
    let _ = writeln!(text, "n_gids_found={}", rows.len());
    text
}

/// The long form: eight groups of four digits.
pub fn long(gid: Gid) -> String {
    Ipv6Addr::from(gid.0).segments().map(|group| format!("{group:04x}")).join(":")
}

/// Returns the last four bytes of a GID that begins with two zeros.
fn ipv4(gid: Gid) -> Option<String> {
    let [0, 0, .., a, b, c, d] = gid.0 else { return None };
    Some(format!("{a}.{b}.{c}.{d}"))
}

/// Returns `v2` of `RoCE v2`.
fn version(kind: &str) -> Option<String> {
    kind.find(['v', 'V']).and_then(|at| kind.get(at..)).map(str::to_owned)
}

/// Whether the GID is a prefix without an identifier behind it, which an unused port of InfiniBand has.
fn is_prefix_alone(gid: Gid) -> bool {
    gid == Gid::from(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0))
}
