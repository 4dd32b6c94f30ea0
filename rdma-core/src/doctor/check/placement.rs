//! Placement: NUMA nodes, access control of PCI bridges, and the way to the memory of GPUs.

use super::{Scope, list};
use crate::doctor::finding::{Finding, Mend, Severity};
use crate::doctor::finding_id::FindingId;
use crate::doctor::{Cpus, Machine, NumaNode, RdmaDevice};
use crate::memory::pinning::Reading;

pub(super) fn check(scope: &Scope<'_>) -> Vec<Finding> {
    let mut findings = numa(scope);
    if scope.wants.gpu_memory {
        findings.extend(gpu(scope));
        findings.extend(scope.devices.iter().filter_map(|device| acs(device)));
    }
    findings
}

/// Checks whether the process is kept off the NUMA nodes of all NICs in question. One near it suffices, because the
/// NICs of the other socket are there for other processes.
fn numa(scope: &Scope<'_>) -> Vec<Finding> {
    let serving = scope.devices.iter().filter(|device| scope.can_serve(device));
    let nodes: Vec<_> = serving.map(|device| (device, far_node(scope.machine, device))).collect();
    if nodes.iter().any(|(_, node)| *node == Ok(None)) {
        return Vec::new();
    }
    let of_device = |(device, node): (&&RdmaDevice, Reading<Option<&NumaNode>>)| match node {
        Ok(node) => Some(remote(scope, device, node?)),
        Err(unknown) => {
            let effect = format!("it is open whether the process runs near {}", device.name);
            Some(Finding::not_visible(FindingId::NumaRemote, &unknown, &effect))
        }
    };
    nodes.into_iter().filter_map(of_device).collect()
}

/// Returns the node of a device if the process may run on none of its processors.
fn far_node<'a>(machine: &'a Machine, device: &RdmaDevice) -> Reading<Option<&'a NumaNode>> {
    let Some(pci) = device.pci.as_ref().map_err(Clone::clone)? else { return Ok(None) };
    let Some(number) = pci.numa_node.clone()? else { return Ok(None) };
    let nodes = machine.numa_nodes.as_ref().map_err(Clone::clone)?;
    let Some(node) = nodes.iter().find(|node| node.number == number) else { return Ok(None) };
    let near = node.cpus.as_ref().map_err(Clone::clone)?;
    let allowed = machine.process.cpus.as_ref().map_err(Clone::clone)?;
    // A node without processors, of memory alone, is near to nobody.
    Ok((!near.is_empty() && !near.meet(allowed)).then_some(node))
}

fn remote(scope: &Scope<'_>, device: &RdmaDevice, node: &NumaNode) -> Finding {
    let (name, number) = (&device.name, node.number);
    let cpus = |cpus: &Reading<Cpus>| cpus.as_ref().map_or_else(ToString::to_string, ToString::to_string);
    let (near, allowed) = (cpus(&node.cpus), cpus(&scope.machine.process.cpus));
    let all = scope.machine.devices.as_ref().map_or(&[][..], Vec::as_slice).iter();
    let nearer = list(
        all.filter(|other| scope.can_serve(other) && far_node(scope.machine, other) == Ok(None))
            .map(|other| &other.name),
    );
    Finding {
        id: FindingId::NumaRemote,
        severity: Severity::Warning,
        text: format!(
            "{name} is on NUMA node {number} (processors {near}), but the process may run on {allowed} alone, so every \
             transfer crosses between the sockets; devices of the process's own nodes: {nearer}"
        ),
        source: device.folder.join("device/numa_node").display().to_string(),
        value: number.to_string(),
        mend: Mend::new(
            format!(
                "numactl --cpunodebind={number} --membind={number} COMMAND, or take a device of the process's nodes: {nearer}"
            ),
            format!("[Service] CPUAffinity={near}, NUMAPolicy=bind, NUMAMask={number}"),
            "kubelet: topologyManagerPolicy single-numa-node and cpuManagerPolicy static; the pod: whole CPUs, requests \
             equal to limits",
        ),
    }
}

/// Does a switch between a GPU and the device send their traffic up to the root. The root port is left out: traffic
/// between its neighbours passes the root in any case, and what stays below a switch never reaches it.
fn acs(device: &RdmaDevice) -> Option<Finding> {
    let name = &device.name;
    let pci = match &device.pci {
        Ok(pci) => pci.as_ref()?,
        Err(unknown) => {
            let effect = format!("it is open which bridges are above {name}");
            return Some(Finding::not_visible(FindingId::AcsRedirect, unknown, &effect));
        }
    };
    let of_switches = pci.bridges.get(1..).unwrap_or_default();
    let redirecting: Vec<_> = of_switches.iter().filter(|bridge| bridge.redirects() == Some(true)).collect();
    let Some(first) = redirecting.first() else {
        let unknown = of_switches.iter().find_map(|bridge| bridge.acs.as_ref().err())?;
        let effect = format!("it is open whether the switches above {name} redirect traffic (ACS)");
        return Some(Finding::not_visible(FindingId::AcsRedirect, unknown, &effect));
    };
    let bridges = list(redirecting.iter().map(|bridge| &bridge.address));
    Some(Finding {
        id: FindingId::AcsRedirect,
        severity: Severity::Warning,
        text: format!(
            "ports of switches above {name} send traffic between it and a GPU below the same switch up to the root (ACS \
             redirect), which is slow: {bridges}"
        ),
        source: first.config.display().to_string(),
        value: format!("ACS control {:#06x}", first.acs.as_ref().ok().copied().flatten().unwrap_or(0)),
        mend: Mend::on_host(format!(
            "setpci -s {} ECAP_ACS+6.w=0000, for each of these and for the port above the GPU; or switch ACS off in the \
             firmware; not on a host of virtual machines, which ACS keeps apart",
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
