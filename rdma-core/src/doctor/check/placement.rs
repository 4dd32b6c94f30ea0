//! Placement: NUMA nodes, access control of PCI bridges, and the way to the memory of GPUs.

use super::{Scope, list};
use crate::doctor::RdmaDevice;
use crate::doctor::finding::{Finding, Mend, Severity};
use crate::doctor::finding_id::FindingId;

pub(super) fn check(scope: &Scope<'_>) -> Vec<Finding> {
    let mut findings: Vec<_> = scope.devices.iter().filter_map(|device| numa(scope, device)).collect();
    if scope.wants.gpu_memory {
        findings.extend(gpu(scope));
        findings.extend(scope.devices.iter().filter_map(|device| acs(device)));
    }
    findings
}

fn numa(scope: &Scope<'_>, device: &RdmaDevice) -> Option<Finding> {
    let name = &device.name;
    let effect = format!("it is open whether the process runs near {name}");
    let not_visible = |unknown| Some(Finding::not_visible(FindingId::NumaRemote, unknown, &effect));
    let node = match &device.pci {
        Ok(None) => return None,
        Ok(Some(pci)) => match &pci.numa_node {
            Ok(node) => (*node)?,
            Err(unknown) => return not_visible(unknown),
        },
        Err(unknown) => return not_visible(unknown),
    };
    let nodes = match &scope.machine.numa_nodes {
        Ok(nodes) => nodes,
        Err(unknown) => return not_visible(unknown),
    };
    let (near, allowed) =
        match (&nodes.iter().find(|known| known.number == node)?.cpus, &scope.machine.process.cpus) {
            (Ok(near), Ok(allowed)) => (near, allowed),
            (Err(unknown), _) | (_, Err(unknown)) => return not_visible(unknown),
        };
    // A node without processors, of memory alone, is near to nobody.
    (!near.is_empty() && !near.meet(allowed)).then(|| Finding {
        id: FindingId::NumaRemote,
        severity: Severity::Warning,
        text: format!(
            "{name} is on NUMA node {node} (processors {near}), but the process may run on {allowed} alone, so every \
             transfer crosses between the sockets"
        ),
        source: device.folder.join("device/numa_node").display().to_string(),
        value: node.to_string(),
        mend: Mend::new(
            format!("numactl --cpunodebind={node} --membind={node} COMMAND, or take a device of the process's node"),
            format!("[Service] CPUAffinity={near}, NUMAPolicy=bind, NUMAMask={node}"),
            "kubelet: topologyManagerPolicy single-numa-node and cpuManagerPolicy static; the pod: whole CPUs, requests \
             equal to limits",
        ),
    })
}

fn acs(device: &RdmaDevice) -> Option<Finding> {
    let name = &device.name;
    let pci = match &device.pci {
        Ok(pci) => pci.as_ref()?,
        Err(unknown) => {
            let effect = format!("it is open which bridges are above {name}");
            return Some(Finding::not_visible(FindingId::AcsRedirect, unknown, &effect));
        }
    };
    let redirecting: Vec<_> = pci.bridges.iter().filter(|bridge| bridge.redirects() == Some(true)).collect();
    let Some(first) = redirecting.first() else {
        let unknown = pci.bridges.iter().find_map(|bridge| bridge.acs.as_ref().err())?;
        let effect = format!("it is open whether the bridges above {name} redirect traffic (ACS)");
        return Some(Finding::not_visible(FindingId::AcsRedirect, unknown, &effect));
    };
    let bridges = list(redirecting.iter().map(|bridge| &bridge.address));
    Some(Finding {
        id: FindingId::AcsRedirect,
        severity: Severity::Warning,
        text: format!(
            "bridges above {name} send traffic between GPU and NIC up to the root (ACS redirect), which is slow: {bridges}"
        ),
        source: first.config.display().to_string(),
        value: format!("ACS control {:#06x}", first.acs.as_ref().ok().copied().flatten().unwrap_or(0)),
        mend: Mend::on_host(format!(
            "setpci -s {} ECAP_ACS+6.w=0000, for each of the bridges; or switch ACS off in the firmware; not on a host of \
             virtual machines, which ACS keeps apart",
            first.address
        )),
    })
}

fn gpu(scope: &Scope<'_>) -> Option<Finding> {
    let gpu = &scope.machine.gpu_memory;
    let module = |name: &str| gpu.folder.join(name).display().to_string();
    let (id, text, source, value, shell) = match (&gpu.nvidia, &gpu.amdgpu) {
        (Err(unknown), _) | (_, Err(unknown)) => {
            let effect = "it is open whether a NIC reaches the memory of GPUs";
            return Some(Finding::not_visible(FindingId::NoGpuDriver, unknown, effect));
        }
        (Ok(false), Ok(false)) => (
            FindingId::NoGpuDriver,
            "no driver of a GPU is loaded, neither nvidia nor amdgpu".to_owned(),
            module("nvidia"),
            "missing",
            "modprobe nvidia, or modprobe amdgpu",
        ),
        // amdgpu hands out dma-bufs by itself.
        (Ok(false), Ok(true)) => return None,
        (Ok(true), _) => match gpu.reaches_nvidia() {
            Some(true) => return None,
            Some(false) => (
                FindingId::NoPeerMemory,
                "no NIC reaches the memory of the GPUs: nvidia_peermem is not loaded, and dma-buf needs Linux 5.12 and the \
                 open kernel module of NVIDIA; so each transfer is copied through the host"
                    .to_owned(),
                module("nvidia_peermem"),
                "missing",
                "modprobe nvidia_peermem; for good: a line `nvidia_peermem` in /etc/modules-load.d/rdma.conf",
            ),
            None => {
                let unknowns = [gpu.peermem.as_ref().err(), gpu.nvidia_is_open.as_ref().err(), gpu.kernel.as_ref().err()];
                let unknown = unknowns.into_iter().flatten().next()?;
                let effect = "it is open whether a NIC reaches the memory of GPUs";
                return Some(Finding::not_visible(FindingId::NoPeerMemory, unknown, effect));
            }
        },
    };
    let (severity, value, mend) = (Severity::Error, value.to_owned(), Mend::on_host(shell));
    Some(Finding { id, severity, text, source, value, mend })
}
