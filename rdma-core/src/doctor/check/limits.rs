//! Limits on numbers: objects of the rdma cgroup, descriptors, and the size of `/dev/shm`.

use super::Scope;
use crate::doctor::finding::{Finding, Mend, Severity};
use crate::doctor::finding_id::FindingId;
use crate::memory::pinning::{Bytes, Limit, RdmaCgroup, RdmaResource};

/// The objects that a process needs at least: a protection domain, a region, a completion queue and a queue pair.
const OBJECTS_MIN: u64 = 4;
/// The size of `/dev/shm` that container runtimes give by default, on which jobs of several GPUs fail.
const SHM_DEFAULT_BYTES: u64 = 64 << 20;
/// The least size of `/dev/shm` that a mend gives, which suffices for NCCL.
const SHM_MEND_GIB: u64 = 8;

pub(super) fn check(scope: &Scope<'_>) -> Vec<Finding> {
    let mut findings = rdma_cgroups(scope);
    findings.extend(descriptors(scope));
    findings.extend(shm(scope));
    findings
}

fn rdma_cgroups(scope: &Scope<'_>) -> Vec<Finding> {
    if scope.devices.is_empty() {
        return Vec::new();
    }
    let effect = "it is open how many objects of RDMA the process may create";
    let groups = match &scope.machine.pinning.rdma_cgroups {
        Ok(hierarchy) => &hierarchy.groups,
        Err(unknown) => return vec![Finding::not_visible(FindingId::RdmaCgroup, unknown, effect)],
    };
    let mut findings = Vec::new();
    for group in groups {
        if let Some(unknown) = group.max.as_ref().err().or(group.current.as_ref().err()) {
            findings.push(Finding::not_visible(FindingId::RdmaCgroup, unknown, effect));
        }
        for device in &scope.devices {
            let needs = [(RdmaResource::HcaHandle, 1), (RdmaResource::HcaObject, OBJECTS_MIN)];
            findings.extend(
                needs.iter().find_map(|(resource, need)| full(group, &device.name, *resource, *need)),
            );
        }
    }
    findings
}

fn full(group: &RdmaCgroup, device: &str, resource: RdmaResource, need: u64) -> Option<Finding> {
    let (max, current) = group.usage(device, resource).or_else(|| {
        // A device of which nothing is in use has no line in `rdma.current`.
        let max = group.max.as_ref().ok()?.iter().find(|line| line.device == device)?.count(resource);
        let unused = !group.current.as_ref().ok()?.iter().any(|line| line.device == device);
        if let (Limit::AtMost(max), true) = (max, unused) { Some((max, 0)) } else { None }
    })?;
    let file = group.limit_file.display().to_string();
    let raise = format!("echo \"{device} {resource}=max\" > {file}");
    (max.saturating_sub(current) < need).then(|| Finding {
        id: FindingId::RdmaCgroup,
        severity: Severity::Error,
        text: format!("the rdma cgroup allows {max} {resource} of {device}, {current} are in use, {need} more are needed"),
        source: file,
        value: format!("{device} {resource}={max}"),
        mend: Mend::new(
            format!("as root, {raise}"),
            format!("[Service] ExecStartPre=+/bin/sh -c '{raise}'"),
            "no field of its own: the container runtime sets it (OCI linux.resources.rdma), or the plugin of the `rdma/…` \
             resource",
        ),
    })
}

fn descriptors(scope: &Scope<'_>) -> Option<Finding> {
    let process = &scope.machine.process;
    let need = scope.wants.descriptors;
    if need == 0 {
        return None;
    }
    let effect = "it is open whether the process may have enough descriptors";
    let (limit, used) = match (&process.open_files_max, &process.open_files) {
        (Ok(Limit::Unlimited), _) => return None,
        (Ok(Limit::AtMost(limit)), Ok(used)) => (*limit, *used),
        (Err(unknown), _) | (_, Err(unknown)) => {
            return Some(Finding::not_visible(FindingId::Descriptors, unknown, effect));
        }
    };
    let wanted = used.saturating_add(need);
    (wanted > limit).then(|| Finding {
        id: FindingId::Descriptors,
        severity: Severity::Error,
        text: format!("the process may have {limit} descriptors and has {used}, but needs {need} more"),
        source: process.folder.join("limits").display().to_string(),
        value: format!("Max open files {limit}"),
        mend: Mend::new(
            format!("ulimit -n {wanted}"),
            format!("[Service] LimitNOFILE={wanted}"),
            "no field of its own: LimitNOFILE= in the unit of the container runtime, or `ulimit -n` in the command",
        ),
    })
}

fn shm(scope: &Scope<'_>) -> Option<Finding> {
    let need = scope.wants.shm_bytes;
    let shm = match &scope.machine.shm {
        Ok(shm) => shm,
        Err(unknown) => {
            let effect = "it is open how much memory processes can share in /dev/shm";
            return Some(Finding::not_visible(FindingId::ShmTooSmall, unknown, effect));
        }
    };
    let size = Bytes(shm.size_bytes);
    let (severity, text) = if shm.size_bytes < need {
        (Severity::Error, format!("/dev/shm is too small: it has {size}, {} are needed", Bytes(need)))
    } else if need == 0 && shm.size_bytes <= SHM_DEFAULT_BYTES {
        // This library puts nothing there.
        let severity = if scope.wants.gpu_memory { Severity::Warning } else { Severity::Note };
        (severity, format!("/dev/shm has {size}, the default of containers, which is too small for NCCL"))
    } else {
        return None;
    };
    let gib = need.div_ceil(1 << 30).max(SHM_MEND_GIB);
    Some(Finding {
        id: FindingId::ShmTooSmall,
        severity,
        text,
        source: shm.file.display().to_string(),
        value: size.to_string(),
        mend: Mend::new(
            format!("mount -o remount,size={gib}g /dev/shm; in a container `--shm-size={gib}g`"),
            format!("[Service] TemporaryFileSystem=/dev/shm:size={gib}G"),
            format!("a volume emptyDir {{medium: Memory, sizeLimit: {gib}Gi}}, mounted at /dev/shm"),
        ),
    })
}
