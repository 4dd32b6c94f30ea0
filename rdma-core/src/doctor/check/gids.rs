//! GIDs: can the entry that was asked for be used, and which one should be taken.

use super::Scope;
use crate::doctor::finding::{Finding, Mend, Severity};
use crate::doctor::finding_id::FindingId;
use crate::doctor::wants::GID_INDEX;
use crate::doctor::{GidTable, Port, RdmaDevice};
use crate::gid;
use crate::memory::pinning::NotKnown;
use crate::{GidEntry, GidType, LinkLayer};

pub(super) fn check(scope: &Scope<'_>) -> Vec<Finding> {
    // A port that is down has no addresses, which is no finding of its own.
    let ports = scope.ports().filter(|(_, port)| port.is_active() != Some(false));
    ports.filter_map(|(device, port)| of_port(scope, device, port)).collect()
}

fn of_port(scope: &Scope<'_>, device: &RdmaDevice, port: &Port) -> Option<Finding> {
    let (name, number) = (&device.name, port.number);
    let not_visible = |id, unknown| {
        let effect = format!("the GIDs of port {number} of {name} are not known");
        Some(Finding::not_visible(id, unknown, &effect))
    };
    let table = match &port.gids {
        Ok(table) => table,
        Err(unknown) => return not_visible(FindingId::NoUsableGid, unknown),
    };
    let link_layer = match &port.link_layer {
        Ok(link_layer) => *link_layer,
        Err(unknown) => return not_visible(FindingId::NoUsableGid, unknown),
    };
    if let (Err(unknown), LinkLayer::ETHERNET) = (&scope.machine.netdevs, link_layer) {
        return not_visible(FindingId::GidElsewhere, unknown);
    }
    let preference = scope.wants.gid_preference(link_layer);
    let chosen = gid::choose(port.number, &scope.machine.gid_entries(port), &preference);
    let Some((index, by)) = scope.wants.gid() else {
        let unread = table.unread.first().or(table.in_doubt.first());
        return match (chosen, unread) {
            (Ok(chosen), _) if link_layer == LinkLayer::ETHERNET => {
                match in_doubt(scope, table, &chosen.entry) {
                    Some((id, unknown)) => not_visible(id, &unknown),
                    None => link_local(scope, device, port, &chosen.entry),
                }
            }
            (Ok(_), _) => None,
            (Err(_), Some((_, unknown))) => not_visible(FindingId::NoUsableGid, unknown),
            (Err(none), None) => Some(none_usable(scope, device, port, none.to_string())),
        };
    };
    let (id, severity, why) = match judge(scope, table, index, link_layer) {
        Verdict::Fine => return None,
        Verdict::Unknown(id, unknown) => return not_visible(id, &unknown),
        Verdict::Wrong(id, severity, why) => (id, severity, why),
    };
    let (take, mend) = match chosen {
        Ok(chosen) => {
            let take =
                format!("take index {} ({}, {})", chosen.entry.index, chosen.entry.gid, chosen.entry.kind);
            let mend = take_another(&take, by);
            (take, mend)
        }
        Err(_) => {
            ("no other entry can be used from here either".to_owned(), give_address(scope, device, port))
        }
    };
    let value = table
        .get(index)
        .map_or("0000:0000:0000:0000:0000:0000:0000:0000".to_owned(), |row| row.gid.to_string());
    Some(Finding {
        id,
        // `of_one` is an error or a warning, and never makes a warning worse.
        severity: severity.max(scope.of_one),
        text: format!("GID index {index} of port {number} of {name}, from {by}, {why}; {take}"),
        source: port.folder.join(format!("gids/{index}")).display().to_string(),
        value,
        mend,
    })
}

/// Returns the mend where another entry than the one `by` an argument or variable can be used.
fn take_another(take: &str, by: &str) -> Mend {
    if by != GID_INDEX {
        return Mend::new(
            format!("{take} (`-x`, `-g`), or leave the index out"),
            "the same, in ExecStart=",
            "the same, in args or command: the index differs from node to node, and is found without the argument",
        );
    }
    Mend::new(
        format!("unset NCCL_IB_GID_INDEX, or {take} (`-x`)"),
        "[Service] UnsetEnvironment=NCCL_IB_GID_INDEX",
        "remove NCCL_IB_GID_INDEX from env: the index differs from node to node, and is found without the variable",
    )
}

/// Returns the mend where no entry can be used.
fn give_address(scope: &Scope<'_>, device: &RdmaDevice, port: &Port) -> Mend {
    let netdev = scope.machine.netdev_of(device, port).map_or("NETDEV", |netdev| &netdev.name);
    Mend::new(
        format!("give the interface an address: `ip address add 10.0.0.1/24 dev {netdev}`"),
        "[Service] no PrivateNetwork=, because the interface must be in the network namespace of the process",
        "hostNetwork: true, or the annotation k8s.v1.cni.cncf.io/networks that brings the interface of the device into the \
         pod",
    )
}

/// Returns whether a process can send from the port: from the entry that was asked for, or from any.
pub(super) fn can_be_used(scope: &Scope<'_>, port: &Port) -> bool {
    let (Ok(table), Ok(link_layer)) = (&port.gids, &port.link_layer) else { return false };
    match scope.wants.gid() {
        Some((index, _)) => match judge(scope, table, index, *link_layer) {
            Verdict::Fine => true,
            // By its name the interface is here.
            Verdict::Unknown(id, _) => id == FindingId::GidElsewhere,
            Verdict::Wrong(_, severity, _) => severity == Severity::Warning,
        },
        None => {
            let entries = scope.machine.gid_entries(port);
            gid::choose(port.number, &entries, &scope.wants.gid_preference(*link_layer)).is_ok()
        }
    }
}

enum Verdict {
    Fine,
    /// The entry exists and cannot be read, or not all of it, or its interface may be in another namespace.
    Unknown(FindingId, NotKnown),
    Wrong(FindingId, Severity, String),
}

fn judge(scope: &Scope<'_>, table: &GidTable, index: u32, link_layer: LinkLayer) -> Verdict {
    if let Some(unknown) = table.unknown(index) {
        return Verdict::Unknown(FindingId::EmptyGid, unknown.clone());
    }
    let Some(row) = table.get(index) else {
        let why = if index < table.len {
            "is empty".to_owned()
        } else {
            format!("does not exist, the table has {} entries", table.len)
        };
        return Verdict::Wrong(FindingId::EmptyGid, Severity::Error, why);
    };
    if link_layer != LinkLayer::ETHERNET {
        return Verdict::Fine;
    }
    match scope.machine.is_here(row) {
        Ok(true) => {}
        Ok(false) => {
            let netdev = row.netdev.as_deref().unwrap_or("which is not named");
            let other = if scope.machine.netdev(netdev).is_some() { ", not the one here" } else { "" };
            let why = format!(
                "belongs to an interface of another network namespace ({netdev}{other}), so nothing can be sent from it"
            );
            return Verdict::Wrong(FindingId::GidElsewhere, Severity::Error, why);
        }
        Err(unknown) => return Verdict::Unknown(FindingId::GidElsewhere, unknown),
    }
    if row.kind == GidType::ROCE_V1 {
        let why =
            "is RoCE v1, which no router forwards, and which does not reach a peer of RoCE v2".to_owned();
        return Verdict::Wrong(FindingId::GidV1, Severity::Warning, why);
    }
    if row.gid.is_link_local() {
        let why = "is link-local, so it reaches peers of the same subnet alone".to_owned();
        return Verdict::Wrong(FindingId::GidLinkLocal, Severity::Warning, why);
    }
    Verdict::Fine
}

/// Returns why the chosen entry may not serve: its interface may be elsewhere, or an entry that reaches further than
/// this link-local one could not be read.
fn in_doubt(scope: &Scope<'_>, table: &GidTable, chosen: &GidEntry) -> Option<(FindingId, NotKnown)> {
    if let Err(unknown) = scope.machine.is_here(table.get(chosen.index)?) {
        return Some((FindingId::GidElsewhere, unknown));
    }
    let (_, unread) = table.unread.first().or(table.in_doubt.first())?;
    chosen.gid.is_link_local().then(|| (FindingId::NoUsableGid, unread.clone()))
}

/// Returns a finding where the entry that is chosen by itself is link-local.
fn link_local(scope: &Scope<'_>, device: &RdmaDevice, port: &Port, chosen: &GidEntry) -> Option<Finding> {
    chosen.gid.is_link_local().then(|| Finding {
        id: FindingId::GidLinkLocal,
        severity: Severity::Warning,
        text: format!(
            "the best GID of port {} of {} is link-local (index {}), as no other is of an address here; it reaches peers of \
             the same subnet alone",
            port.number, device.name, chosen.index
        ),
        source: port.folder.join(format!("gids/{}", chosen.index)).display().to_string(),
        value: chosen.gid.to_string(),
        mend: give_address(scope, device, port),
    })
}

fn none_usable(scope: &Scope<'_>, device: &RdmaDevice, port: &Port, why: String) -> Finding {
    Finding {
        id: FindingId::NoUsableGid,
        severity: scope.of_one,
        text: format!("no GID of port {} of {} can be used from here: {why}", port.number, device.name),
        source: port.folder.join("gids").display().to_string(),
        value: "no usable entry".to_owned(),
        mend: give_address(scope, device, port),
    }
}
