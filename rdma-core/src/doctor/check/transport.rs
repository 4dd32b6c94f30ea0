//! Transport of devices: InfiniBand and RoCE are the library's, others are not.

use super::Scope;
use crate::doctor::RdmaDevice;
use crate::doctor::finding::{Finding, Mend, Severity};
use crate::doctor::finding_id::FindingId;

/// Types of node that the kernel prints (`enum rdma_node_type`).
const CHANNEL_ADAPTER: u32 = 1;
const RNIC: u32 = 4;
const USNIC: u32 = 5;
const USNIC_UDP: u32 = 6;

/// Devices of another transport give this finding alone, because none of the other ones would help.
pub(super) fn check(scope: &Scope<'_>) -> Vec<Finding> {
    // Where another device serves, nothing is wrong with the machine.
    let severity = if scope.of_one == Severity::Error { Severity::Error } else { Severity::Note };
    let of_device = |device: &&RdmaDevice| match (unsupported(device), &device.node_type) {
        (Some((why, mend)), _) => Some(finding(severity, device, why, mend)),
        (None, Err(unknown)) => {
            let effect = format!("it is open whether {} is a device of InfiniBand or RoCE", device.name);
            Some(Finding::not_visible(FindingId::Transport, unknown, &effect))
        }
        (None, Ok(_)) => None,
    };
    scope.asked.iter().filter_map(of_device).collect()
}

/// Returns why the library cannot use a device, and what can; `None` where the library can, or that is not known.
pub(super) fn unsupported(device: &RdmaDevice) -> Option<(&'static str, &'static str)> {
    const OTHER: &str = "the software device over TCP";
    let is_efa = match &device.driver {
        Ok(Some(driver)) => driver == "efa",
        _ => device.name.starts_with("efa_"),
    };
    if is_efa {
        let mend = "libfabric's provider efa (NCCL: aws-ofi-nccl), or the software device over TCP";
        return Some(("is an EFA adapter, which has no reliable connections (RC), only SRD and UD", mend));
    }
    match device.node_type.as_ref().ok()?.code {
        CHANNEL_ADAPTER => None,
        RNIC => Some(("speaks iWARP, which has no GIDs of RoCE, and which librdmacm alone connects", OTHER)),
        USNIC | USNIC_UDP => Some(("is a usNIC, which has no reliable connections (RC), only UD", OTHER)),
        _ => Some(("is no channel adapter of InfiniBand or RoCE", OTHER)),
    }
}

fn finding(severity: Severity, device: &RdmaDevice, why: &str, mend: &str) -> Finding {
    let kind = |kind: &crate::doctor::Numbered| format!("{}: {}", kind.code, kind.name);
    let instead = format!("take a device of InfiniBand or RoCE, or {mend}");
    Finding {
        id: FindingId::Transport,
        severity,
        text: format!("{} {why}; so this library does not use it", device.name),
        source: device.folder.join("node_type").display().to_string(),
        value: device.node_type.as_ref().map_or_else(ToString::to_string, kind),
        mend: Mend::new(
            instead.clone(),
            format!("{instead}, in ExecStart= or Environment="),
            format!("{instead}; ask for a node with such a device"),
        ),
    }
}
