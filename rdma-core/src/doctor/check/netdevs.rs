//! Network interfaces of ports: state, MTU and bonds.

use super::Scope;
use crate::doctor::finding::{Finding, Mend, Severity};
use crate::doctor::finding_id::FindingId;
use crate::doctor::{Netdev, Port, RdmaDevice};
use crate::{LinkLayer, Mtu};

/// Bytes of headers that a RoCE packet may have beside its payload, as the kernel counts them (`iboe_get_mtu`): GRH 40,
/// UDP 8, BTH 12, XRC 4, atomic 28, ICRC 4.
const HEADERS: u32 = 96;

pub(super) fn check(scope: &Scope<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (device, port) in scope.ports() {
        let Some(netdev) = scope.machine.netdev_of(device, port) else { continue };
        // On InfiniBand the interface is IP's alone, and messages pass while it is down.
        if port.link_layer == Ok(LinkLayer::ETHERNET) {
            findings.extend(state(scope, device, port, netdev));
            findings.extend(mtu(scope, device, netdev));
            findings.extend(bond(scope, device, netdev));
        }
    }
    findings
}

fn state(scope: &Scope<'_>, device: &RdmaDevice, port: &Port, netdev: &Netdev) -> Option<Finding> {
    let Netdev { name, folder, .. } = netdev;
    match netdev.is_up() {
        Some(true) => None,
        Some(false) => Some(Finding {
            id: FindingId::NetdevDown,
            severity: scope.of_one,
            text: format!("the interface {name} of port {} of {} is down", port.number, device.name),
            source: folder.join("operstate").display().to_string(),
            value: netdev.operstate.clone().unwrap_or_else(|unknown| unknown.to_string()),
            mend: Mend::new(
                format!("ip link set {name} up"),
                "[Unit] Wants=network-online.target, After=network-online.target",
                "mend the node as in the shell; for an interface of the pod, look at the log of its CNI plugin",
            ),
        }),
        None => {
            let unknown = netdev.operstate.as_ref().err().or(netdev.flags.as_ref().err())?;
            let effect = format!("it is open whether the interface {name} of {} is up", device.name);
            Some(Finding::not_visible(FindingId::NetdevDown, unknown, &effect))
        }
    }
}

fn mtu(scope: &Scope<'_>, device: &RdmaDevice, netdev: &Netdev) -> Option<Finding> {
    let wanted = scope.wants.path_mtu.unwrap_or(Mtu::MTU_4096);
    let wanted_bytes = wanted.bytes()?;
    let Netdev { name, folder, .. } = netdev;
    let mtu = match &netdev.mtu {
        Ok(mtu) => *mtu,
        Err(unknown) => {
            let effect = format!("it is open which packets {} can send", device.name);
            return Some(Finding::not_visible(FindingId::NetdevMtu, unknown, &effect));
        }
    };
    let carried = Mtu::from_bytes(mtu.saturating_sub(HEADERS)).and_then(Mtu::bytes).unwrap_or(0);
    let needed = wanted_bytes + HEADERS;
    (carried < wanted_bytes).then(|| Finding {
        id: FindingId::NetdevMtu,
        severity: Severity::Warning,
        text: format!(
            "the MTU {mtu} of {name} leaves RDMA packets of {carried} bytes to {}, in place of {wanted_bytes}; every \
             host and switch on the way needs {needed} at least",
            device.name
        ),
        source: folder.join("mtu").display().to_string(),
        value: mtu.to_string(),
        mend: Mend::new(
            format!("ip link set {name} mtu 9000, on all hosts; {needed} is the least"),
            "no setting of its own; MTUBytes=9000 in the .link or .network file of the interface",
            "\"mtu\": 9000 in the config of the NetworkAttachmentDefinition; on the host network, mend the node",
        ),
    })
}

fn bond(scope: &Scope<'_>, device: &RdmaDevice, netdev: &Netdev) -> Option<Finding> {
    let master = match &netdev.master {
        Ok(master) => master.as_deref()?,
        Err(unknown) => {
            let effect =
                format!("it is open whether the interface {} of {} is in a bond", netdev.name, device.name);
            return Some(Finding::not_visible(FindingId::NetdevInBond, unknown, &effect));
        }
    };
    scope.machine.netdev(master)?.bond.as_ref()?;
    let Netdev { name, folder, .. } = netdev;
    Some(Finding {
        id: FindingId::NetdevInBond,
        severity: Severity::Warning,
        text: format!(
            "the interface {name} of {} belongs to the bond {master}, whose addresses {} does not have; the adapter has not \
             bonded its RDMA devices to one (mlx5_bond_N)",
            device.name, device.name
        ),
        source: folder.join("master").display().to_string(),
        value: master.to_owned(),
        mend: Mend::on_host(format!(
            "bond both ports of one adapter in mode 1, 2 or 4 before the driver's RDMA part loads, or take {name} out of \
             {master}"
        )),
    })
}
