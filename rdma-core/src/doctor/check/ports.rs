//! Ports: their number, state, subnet manager and rate.

use super::{Scope, list};
use crate::doctor::finding::{Finding, Mend, Severity};
use crate::doctor::finding_id::FindingId;
use crate::doctor::{Port, RdmaDevice};
use crate::{LinkLayer, PortState};

pub(super) fn check(scope: &Scope<'_>) -> Vec<Finding> {
    let mut findings: Vec<_> = scope.devices.iter().filter_map(|device| number(scope, device)).collect();
    for (device, port) in scope.ports() {
        findings.extend(state(scope, device, port));
        findings.extend(link(device, port));
        findings.extend(rate(scope, device, port));
    }
    findings
}

/// Is there a port at all, and the one that was asked for.
fn number(scope: &Scope<'_>, device: &RdmaDevice) -> Option<Finding> {
    let name = &device.name;
    let ports = match &device.ports {
        Ok(ports) => ports,
        Err(unknown) => {
            let effect = format!("nothing is known about the ports of {name}");
            return Some(Finding::not_visible(FindingId::NoPorts, unknown, &effect));
        }
    };
    let numbers = list(ports.iter().map(|port| port.number.to_string()));
    let (id, text) = match scope.wants.port {
        _ if ports.is_empty() => (FindingId::NoPorts, format!("{name} has no port, so it reaches nobody")),
        Some(wanted) if device.port(wanted).is_none() => {
            (FindingId::UnknownPort, format!("{name} has no port {wanted}; its ports are: {numbers}"))
        }
        _ => return None,
    };
    Some(Finding {
        id,
        severity: scope.of_one,
        text,
        source: device.folder.join("ports").display().to_string(),
        mend: Mend::new(
            format!("take another device than {name}, or one of its ports: {numbers}"),
            "the same, in ExecStart= or Environment=",
            "the same, in args or env",
        ),
        value: numbers,
    })
}

/// Does the port carry data.
fn state(scope: &Scope<'_>, device: &RdmaDevice, port: &Port) -> Option<Finding> {
    let (name, number) = (&device.name, port.number);
    let state = match &port.state {
        Ok(state) => state,
        Err(unknown) => {
            let effect = format!("it is open whether port {number} of {name} carries data");
            return Some(Finding::not_visible(FindingId::PortDown, unknown, &effect));
        }
    };
    let infiniband = port.link_layer == Ok(LinkLayer::INFINIBAND);
    let finding = |id, text, source: &str, value, mend| {
        let source = port.folder.join(source).display().to_string();
        Some(Finding { id, severity: scope.of_one, text, source, value, mend })
    };
    let value = format!("{}: {}", state.code, state.name);
    match PortState(state.code) {
        PortState::ACTIVE if infiniband && port.sm_lid == Ok(0) => {
            let text = format!(
                "port {number} of {name} is active, but knows no subnet manager, so no path can be asked for"
            );
            finding(FindingId::NoSubnetManager, text, "sm_lid", "0x0".to_owned(), subnet_manager())
        }
        PortState::ACTIVE if infiniband => {
            let effect = format!("it is open whether port {number} of {name} knows a subnet manager");
            let unknown = port.sm_lid.as_ref().err()?;
            Some(Finding::not_visible(FindingId::NoSubnetManager, unknown, &effect))
        }
        PortState::ACTIVE => None,
        PortState::INIT | PortState::ARMED if infiniband => {
            let text = format!(
                "port {number} of {name} has a link, but no subnet manager has configured it ({}), so nothing can be sent",
                state.name
            );
            finding(FindingId::NoSubnetManager, text, "state", value, subnet_manager())
        }
        _ => {
            let physical = port.phys_state.as_ref().map_or("not known", |state| &state.name);
            let others = list(active(scope, infiniband));
            let text = format!(
                "port {number} of {name} is {} (physical state {physical}), so nothing can be sent; ports that are up: \
                 {others}",
                state.name
            );
            let netdev = scope.machine.netdev_of(device, port).map_or("NETDEV", |netdev| &netdev.name);
            let bring_up = if infiniband {
                format!("`mlxlink -d {name} --port_state UP`")
            } else {
                format!("`ip link set {netdev} up`")
            };
            let mend = Mend::new(
                format!("take a port that is up, or {bring_up}; then look at the cable and the switch"),
                "the same; [Unit] Wants=network-online.target, After=network-online.target, where the link comes late",
                "name a device that is up in args or NCCL_IB_HCA, or ask for a node whose link is up",
            );
            finding(FindingId::PortDown, text, "state", value, mend)
        }
    }
}

/// Is the state of the link known, whatever the logical state says.
fn link(device: &RdmaDevice, port: &Port) -> Option<Finding> {
    let unknown = port.phys_state.as_ref().err()?;
    let effect = format!("it is open whether port {} of {} has a link", port.number, device.name);
    Some(Finding::not_visible(FindingId::PortDown, unknown, &effect))
}

/// Returns all ports that carry data, those on the same kind of network.
fn active(scope: &Scope<'_>, infiniband: bool) -> Vec<String> {
    let devices = scope.machine.devices.as_ref().map_or(&[][..], Vec::as_slice).iter();
    let ports = devices.flat_map(|device| {
        let ports = device.ports.as_ref().map_or(&[][..], Vec::as_slice).iter();
        ports.map(move |port| (device, port))
    });
    let up = ports.filter(|(_, port)| {
        port.is_active() == Some(true) && (port.link_layer == Ok(LinkLayer::INFINIBAND)) == infiniband
    });
    up.map(|(device, port)| format!("{} port {}", device.name, port.number)).collect()
}

fn subnet_manager() -> Mend {
    Mend::on_host(
        "start a subnet manager on one host (`systemctl start opensm`) or on the switch; `sminfo` shows it",
    )
}

/// Does the port run at the rate of its sisters: ports that are up, of the same board and kind of network.
/// A port that is down reports a rate that means nothing (mlx5: 40 Gbit/s).
fn rate(scope: &Scope<'_>, device: &RdmaDevice, port: &Port) -> Option<Finding> {
    if port.is_active() != Some(true) {
        return None;
    }
    if let Some(unknown) = port.rate.as_ref().err().or(device.hca_type.as_ref().err()) {
        let effect =
            format!("it is open whether port {} of {} runs at its full rate", port.number, device.name);
        return Some(Finding::not_visible(FindingId::SlowPort, unknown, &effect));
    }
    let own = port.gbits()?;
    let kind = device.hca_type.as_ref().ok()?.as_deref()?;
    let all = scope.machine.devices.as_ref().ok()?.iter();
    let of_board = |other: &RdmaDevice| match (&other.board_id, &device.board_id) {
        (Ok(other), Ok(own)) => other == own,
        _ => true,
    };
    let of_kind = |other: &RdmaDevice| matches!(&other.hca_type, Ok(Some(other)) if other == kind);
    let sisters = all.filter(|other| of_kind(other) && of_board(other));
    let ports = sisters.flat_map(|other| other.ports.as_ref().map_or(&[][..], Vec::as_slice));
    let alike = ports.filter(|other| other.is_active() == Some(true) && other.link_layer == port.link_layer);
    let best = alike.filter_map(Port::gbits).fold(own, f64::max);
    (own < best).then(|| Finding {
        id: FindingId::SlowPort,
        severity: Severity::Warning,
        text: format!(
            "port {} of {} runs at {own} Gbit/s, another port of the type {kind} at {best} Gbit/s",
            port.number, device.name
        ),
        source: port.folder.join("rate").display().to_string(),
        value: port.rate.clone().unwrap_or_default(),
        mend: Mend::on_host(
            "compare cable, transceiver and the port of the switch (`mlxlink -d DEVICE`, `ethtool NETDEV`)",
        ),
    })
}
