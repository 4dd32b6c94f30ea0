//! Remedies: how to raise each limit in a shell, in a systemd unit and in a pod spec.
//!
//! Prints the last part of a diagnosis. Finding the limit is left to `explain`.

use super::explain::{PinningCause, PinningDiagnosis};
use super::reading::{Bytes, Limit};
use std::fmt;
use std::path::Path;

/// Remedy for each place where a limit may be set. Further lines of a place continue its first one.
struct Mend {
    first: String,
    shell: Vec<String>,
    systemd_unit: Vec<String>,
    pod_spec: Vec<String>,
}

/// Prints the remedy, without a newline at the end.
pub(super) fn fmt(diagnosis: &PinningDiagnosis, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mend = match diagnosis.cause() {
        PinningCause::MemlockZero => memlock(diagnosis, 0),
        PinningCause::MemlockTooSmall { pinned_bytes, .. } => memlock(diagnosis, *pinned_bytes),
        PinningCause::MemoryCgroup { limit_file, limit_bytes, shortfall_bytes, .. } => {
            memory_cgroup(limit_file, limit_bytes.saturating_add(*shortfall_bytes))
        }
        PinningCause::SystemMemory { shortfall_bytes, .. } => system_memory(*shortfall_bytes),
        PinningCause::RdmaCgroup { limit_file, resource, .. } => {
            let (device, file) = (diagnosis.device(), limit_file.display());
            rdma_cgroup(&format!("echo \"{device} {resource}=max\" > {file}"))
        }
        PinningCause::NotExplained => return write!(f, "mend: {}", not_explained(diagnosis.errno())),
        PinningCause::NotALimit => return write!(f, "mend: {}", not_a_limit(diagnosis.errno())),
    };
    write!(f, "mend: {}:", mend.first)?;
    let places = [("shell", mend.shell), ("systemd unit", mend.systemd_unit), ("pod spec", mend.pod_spec)];
    for (place, lines) in places {
        for (at, line) in lines.iter().enumerate() {
            let label = if at == 0 { format!("{place}:") } else { String::new() };
            write!(f, "\n  {label:<15}{line}")?;
        }
    }
    Ok(())
}

fn memlock(diagnosis: &PinningDiagnosis, pinned_bytes: u64) -> Mend {
    let snapshot = diagnosis.snapshot();
    let wanted = pinned_bytes.saturating_add(diagnosis.need().pinned_bytes(snapshot.page_bytes));
    let ulimit = match snapshot.memlock.hard {
        Ok(Limit::Unlimited) => "ulimit -l unlimited".to_owned(),
        Ok(Limit::AtMost(hard)) if hard >= wanted => {
            format!("ulimit -l {} (in kB, as far as the hard limit goes)", hard / 1024)
        }
        Ok(Limit::AtMost(hard)) => {
            format!("as root, ulimit -l unlimited; others may not pass the hard limit of {}", Bytes(hard))
        }
        Err(_) => "ulimit -l unlimited, as root if that is refused".to_owned(),
    };
    let lasting = "for good: `* - memlock unlimited` in /etc/security/limits.d/rdma.conf, and log in anew";
    let where_it_counts = if snapshot.ipc_lock.initial_user_namespace == Ok(false) {
        "with hostUsers: true, since the capability counts in no other user namespace"
    } else {
        "for a user other than root: LimitMEMLOCK=infinity in the unit of the container runtime"
    };
    Mend {
        first: format!("lift the limit, or raise it to {} at least", Bytes(wanted)),
        shell: vec![ulimit, lasting.to_owned()],
        systemd_unit: vec!["[Service] LimitMEMLOCK=infinity".to_owned()],
        pod_spec: vec![
            "securityContext.capabilities.add: [\"IPC_LOCK\"] on the container".to_owned(),
            where_it_counts.to_owned(),
        ],
    }
}

fn memory_cgroup(limit_file: &Path, wanted: u64) -> Mend {
    // v1 spells "unlimited" as -1.
    let lifted = if limit_file.ends_with("memory.max") { "max" } else { "-1" };
    Mend {
        first: format!("raise the limit to {} at least, or register less", Bytes(wanted)),
        shell: vec![format!("as root, echo {lifted} > {}", limit_file.display())],
        systemd_unit: vec!["[Service] MemoryMax=infinity".to_owned()],
        pod_spec: vec!["resources.limits.memory of the container".to_owned()],
    }
}

fn system_memory(shortfall: u64) -> Mend {
    let more = Bytes(shortfall);
    Mend {
        first: "register less, or free memory".to_owned(),
        shell: vec!["stop other programs, or give back reserved huge pages (vm.nr_hugepages)".to_owned()],
        systemd_unit: vec!["the same; no setting of the unit limits this".to_owned()],
        pod_spec: vec![format!("resources.requests.memory, for a node with {more} more")],
    }
}

fn rdma_cgroup(raise: &str) -> Mend {
    Mend {
        first: "close what is no longer used, or raise the limit".to_owned(),
        shell: vec![format!("as root, {raise}")],
        systemd_unit: vec![format!("no setting of its own; [Service] ExecStartPre=+/bin/sh -c '{raise}'")],
        pod_spec: vec![
            "no field of its own: the container runtime sets it (OCI linux.resources.rdma:".to_owned(),
            "hcaHandles, hcaObjects), or the plugin that serves the pod's `rdma/...` resource".to_owned(),
        ],
    }
}

fn not_explained(errno: Option<i32>) -> &'static str {
    match errno {
        Some(libc::EPERM) => "see that /proc is mounted; then `ulimit -l` must not be 0",
        Some(libc::EAGAIN) => {
            "on the host, compare rdma.max with rdma.current in every ancestor cgroup; \
             else the driver asks to be tried again"
        }
        _ => {
            "register less at a time; compare the device's own bounds (max_mr, max_mr_size and max_cq of \
             `ibv_devinfo -v`), and look into `dmesg`"
        }
    }
}

fn not_a_limit(errno: Option<i32>) -> &'static str {
    match errno {
        Some(libc::EPERM) => "look for a security module (SELinux, AppArmor, seccomp) in `dmesg`",
        Some(libc::EINVAL) => {
            "the range must not be empty nor wrap, and remote write or atomic needs local write"
        }
        Some(libc::EFAULT) => "the whole range must be mapped, and writable if the access asks for writes",
        Some(libc::EOPNOTSUPP) => "ask the device for less; it has no such kind of memory or access",
        _ => "look into `dmesg`, and at the device with `ibv_devinfo -v`",
    }
}
