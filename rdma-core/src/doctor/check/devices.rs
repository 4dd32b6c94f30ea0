//! Presence of devices: is there any, and is the one that was asked for there.

use super::{Scope, list};
use crate::doctor::finding::{Finding, Mend, Severity};
use crate::doctor::finding_id::FindingId;

/// The mend where a container sees no device that its host has.
const RESOURCE: &str = "resources.limits: the RDMA resource of the device plugin (`rdma/…: 1`), and for a device in a \
                        network namespace of its own the annotation k8s.v1.cni.cncf.io/networks";

pub(super) fn check(scope: &Scope<'_>) -> Vec<Finding> {
    let devices = match &scope.machine.devices {
        Ok(devices) => devices,
        Err(unknown) => {
            let effect = "nothing is known about RDMA devices";
            return vec![Finding::not_visible(FindingId::NoSysfs, unknown, effect)];
        }
    };
    let class = scope.machine.root.join("sys/class/infiniband").display().to_string();
    if devices.is_empty() {
        let wanted = scope.wants.device.is_some() || !scope.hca.is_empty();
        return vec![Finding {
            id: FindingId::NoDevice,
            severity: if wanted { Severity::Error } else { Severity::Warning },
            text: "there is no RDMA device here; the software device needs none".to_owned(),
            source: class,
            value: "none".to_owned(),
            mend: Mend::new(
                "load the driver (`modprobe mlx5_ib`, or `rdma link add rxe0 type rxe netdev eth0` for soft-RoCE)",
                "[Service] no PrivateNetwork=, where `rdma system` says `netns exclusive`",
                RESOURCE,
            ),
        }];
    }
    let Some(name) = scope.wants.device.as_deref().filter(|name| scope.machine.device(name).is_none()) else {
        return Vec::new();
    };
    let names = list(devices.iter().map(|device| &device.name));
    let bonds = list(devices.iter().map(|device| &device.name).filter(|name| is_bond(name)));
    let (id, text) = if is_bond(name) {
        let text = format!(
            "no bond is named {name}; the bonds are: {bonds}, the devices: {names}. A bond is a device only where both of \
             its slaves are ports of one adapter"
        );
        (FindingId::UnknownBond, text)
    } else if bonds != "none" && family(&bonds) == family(name) {
        let text =
            format!("{name} is not here; perhaps its port belongs to a bond: {bonds}; all devices: {names}");
        (FindingId::BondedDevice, text)
    } else {
        (FindingId::UnknownDevice, format!("no RDMA device is named {name}; there are: {names}"))
    };
    let take = format!("take one of {names}");
    vec![Finding {
        id,
        severity: Severity::Error,
        text,
        source: class,
        value: names,
        mend: Mend::new(
            format!("{take} (`-d NAME`, or NCCL_IB_HCA)"),
            format!("{take} in ExecStart= or Environment="),
            format!("{take} in args or env; for another device, {RESOURCE}"),
        ),
    }]
}

fn is_bond(name: &str) -> bool {
    name.contains("_bond_")
}

/// Returns the name of the driver at the beginning of a name: `mlx5` of `mlx5_bond_0`.
fn family(name: &str) -> Option<&str> {
    name.split('_').next()
}
