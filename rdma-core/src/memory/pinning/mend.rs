//! Remedies: how to raise each limit in a shell, in a systemd unit and in a pod spec.
//!
//! Prints the last part of a diagnosis. Finding the limit is left to `explain`.

use super::explain::{PinningCause, PinningDiagnosis};
use super::reading::{Bytes, Limit};
use std::fmt;
use std::path::Path;

/// Prints the remedy, without a newline at the end.
pub(super) fn fmt(diagnosis: &PinningDiagnosis, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("mend: ")?;
    f.write_str(&match diagnosis.cause() {
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
        PinningCause::NotExplained => not_explained(diagnosis.errno()).to_owned(),
        PinningCause::NotALimit => not_a_limit(diagnosis.errno()).to_owned(),
    })
}

fn memlock(diagnosis: &PinningDiagnosis, pinned_bytes: u64) -> String {
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
    let where_it_counts = if snapshot.ipc_lock.initial_user_namespace == Ok(false) {
        "with hostUsers: true, since the capability counts in no other user namespace"
    } else {
        "for a user other than root: LimitMEMLOCK=infinity in the unit of the container runtime"
    };
    let wanted = Bytes(wanted);
    format!(
        "lift the limit, or raise it to {wanted} at least:
  shell:         {ulimit}
                 for good: `* - memlock unlimited` in /etc/security/limits.d/rdma.conf, and log in anew
  systemd unit:  [Service] LimitMEMLOCK=infinity
  pod spec:      securityContext.capabilities.add: [\"IPC_LOCK\"] on the container
                 {where_it_counts}"
    )
}

fn memory_cgroup(limit_file: &Path, wanted: u64) -> String {
    // v1 spells "unlimited" as -1.
    let lifted = if limit_file.ends_with("memory.max") { "max" } else { "-1" };
    let (wanted, file) = (Bytes(wanted), limit_file.display());
    format!(
        "raise the limit to {wanted} at least, or register less:
  shell:         as root, echo {lifted} > {file}
  systemd unit:  [Service] MemoryMax=infinity
  pod spec:      resources.limits.memory of the container"
    )
}

fn system_memory(shortfall: u64) -> String {
    let more = Bytes(shortfall);
    format!(
        "register less, or free memory:
  shell:         stop other programs, or give back reserved huge pages (vm.nr_hugepages)
  systemd unit:  the same; no setting of the unit limits this
  pod spec:      resources.requests.memory, for a node with {more} more"
    )
}

fn rdma_cgroup(raise: &str) -> String {
    format!(
        "close what is no longer used, or raise the limit:
  shell:         as root, {raise}
  systemd unit:  no setting of its own; [Service] ExecStartPre=+/bin/sh -c '{raise}'
  pod spec:      no field of its own: the container runtime sets it (OCI linux.resources.rdma:
                 hcaHandles, hcaObjects), or the plugin that serves the pod's `rdma/...` resource"
    )
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
