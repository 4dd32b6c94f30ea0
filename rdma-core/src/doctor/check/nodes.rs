//! Nodes in `/dev/infiniband`: may this process open the devices that sysfs shows.

use super::Scope;
use crate::doctor::finding::{Finding, Mend, Severity};
use crate::doctor::finding_id::FindingId;
use crate::doctor::{DeviceNode, Machine, RdmaDevice};

pub(super) fn check(scope: &Scope<'_>) -> Vec<Finding> {
    let folder = scope.machine.root.join("dev/infiniband");
    if !scope.devices.is_empty() && scope.machine.has_uverbs == Ok(false) {
        return vec![Finding {
            id: FindingId::NoUverbs,
            severity: Severity::Error,
            text: "the kernel's module ib_uverbs is not loaded, so no program can open an RDMA device"
                .to_owned(),
            source: scope.machine.root.join("sys/class/infiniband_verbs").display().to_string(),
            value: "missing".to_owned(),
            mend: Mend::on_host(
                "modprobe ib_uverbs; for good: a line `ib_uverbs` in /etc/modules-load.d/rdma.conf",
            ),
        }];
    }
    let nodes = match &scope.machine.nodes {
        Ok(nodes) => nodes,
        Err(unknown) => {
            let effect = "it is open whether a program can open a device";
            return vec![Finding::not_visible(FindingId::NodeMissing, unknown, effect)];
        }
    };
    let of_device = |device: &&RdmaDevice| match &device.uverbs {
        Err(unknown) => {
            let effect = format!("it is open which node opens {}", device.name);
            Some(Finding::not_visible(FindingId::NodeMissing, unknown, &effect))
        }
        Ok(None) => Some(missing(scope, &device.name, "uverbsN", folder.display().to_string())),
        Ok(Some(name)) => match nodes.iter().find(|node| node.name == *name) {
            None => Some(missing(scope, &device.name, name, folder.join(name).display().to_string())),
            Some(node) => denied(scope, &device.name, node),
        },
    };
    scope.devices.iter().filter_map(of_device).collect()
}

/// Returns whether the node of a device is here, and this process may open it.
pub(super) fn can_be_opened(machine: &Machine, device: &RdmaDevice) -> bool {
    let (Ok(nodes), Ok(Some(name))) = (&machine.nodes, &device.uverbs) else { return false };
    nodes.iter().any(|node| node.name == *name && node.access.is_ok())
}

fn missing(scope: &Scope<'_>, device: &str, node: &str, source: String) -> Finding {
    Finding {
        id: FindingId::NodeMissing,
        severity: scope.of_one,
        text: format!(
            "sysfs shows {device}, but its node /dev/infiniband/{node} is not here, so {device} does not open"
        ),
        source,
        value: "missing".to_owned(),
        mend: Mend::new(
            format!(
                "in a container: `--device=/dev/infiniband/{node} --device=/dev/infiniband/rdma_cm`; on a host: udev"
            ),
            format!("[Service] PrivateDevices=no, DeviceAllow=/dev/infiniband/{node} rw"),
            "resources.limits: the RDMA resource of the device plugin (`rdma/…: 1`), or the label of the vendor",
        ),
    }
}

fn denied(scope: &Scope<'_>, device: &str, node: &DeviceNode) -> Option<Finding> {
    let unknown = node.access.as_ref().err()?;
    Some(Finding {
        id: FindingId::NodeDenied,
        severity: scope.of_one,
        text: format!("this process may not open the node of {device}: {}", unknown.why),
        source: node.file.display().to_string(),
        value: unknown.why.clone(),
        mend: if unknown.why.contains("not permitted") { allow(node) } else { change_mode(node) },
    })
}

/// Returns the mend where the cgroup of devices, or a security module, refuses (EPERM).
fn allow(node: &DeviceNode) -> Mend {
    let file = node.file.display();
    Mend::new(
        format!(
            "in a container: `--device={file}`; a mount of the folder does not let the container use the node"
        ),
        format!("[Service] DeviceAllow={file} rw"),
        "resources.limits: the RDMA resource of the device plugin (`rdma/…: 1`); a hostPath alone does not let the \
         container use the node",
    )
}

/// Returns the mend where the mode of the file refuses (EACCES).
fn change_mode(node: &DeviceNode) -> Mend {
    let file = node.file.display();
    Mend::new(
        format!("chmod 0666 {file} (the mode that udev gives), or run as its user"),
        format!(
            "[Service] User= or SupplementaryGroups= that may open {file}; for good, a rule of udev with MODE=\"0666\""
        ),
        "securityContext.runAsUser: 0, or the mode 0666 on the node, which udev gives there",
    )
}
