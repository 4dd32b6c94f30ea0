//! Limits on pinned memory: RLIMIT_MEMLOCK and CAP_IPC_LOCK, memory cgroups, and the memory of the system.

use super::Scope;
use crate::doctor::finding::{Finding, Mend, Severity};
use crate::doctor::finding_id::FindingId;
use crate::memory::pinning::{Bytes, Limit, NotKnown, PinningCause, PinningNeed};

/// The field of a pod that lifts RLIMIT_MEMLOCK.
const IPC_LOCK: &str =
    "securityContext.capabilities.add: [\"IPC_LOCK\"], in a container of root and with hostUsers: true";

pub(super) fn check(scope: &Scope<'_>) -> Vec<Finding> {
    // A process registers with the devices that it can use, and a pod sees those of others, too.
    let devices = scope.devices.iter().filter(|device| scope.can_serve(device)).count().max(1) as u64;
    // Every registration pins its pages again; the memory cgroup is charged once.
    let need = PinningNeed::length(scope.wants.pin_bytes).registrations(devices);
    let mut findings = Vec::new();
    findings.extend(memlock(scope, need));
    findings.extend(capability(scope, need));
    findings.extend(memory(scope, need));
    findings
}

fn limits(scope: &Scope<'_>) -> String {
    scope.machine.process.folder.join("limits").display().to_string()
}

/// Returns the mend of a limit of `ulimit -l`.
fn raise() -> Mend {
    Mend::new(
        "ulimit -l unlimited; for good: `* - memlock unlimited` in /etc/security/limits.d/rdma.conf",
        "[Service] LimitMEMLOCK=infinity",
        IPC_LOCK,
    )
}

fn memlock(scope: &Scope<'_>, need: PinningNeed) -> Option<Finding> {
    let pinning = &scope.machine.pinning;
    if let (Err(unknown), false) = (&pinning.memlock.soft, pinning.ipc_lock.lifts_memlock() == Some(true)) {
        let effect = "it is open how much memory may be registered";
        return Some(Finding::not_visible(FindingId::MemlockTooSmall, unknown, effect));
    }
    let needed = Bytes(need.pinned_bytes(pinning.page_bytes));
    let (limit, text) = match pinning.memlock_cause(need)? {
        PinningCause::MemlockTooSmall { limit_bytes, pinned_bytes, shortfall_bytes } => {
            let (held, short) = (Bytes(pinned_bytes), Bytes(shortfall_bytes));
            (
                limit_bytes,
                format!(
                    "RLIMIT_MEMLOCK is too small: {held} are pinned, {needed} more are needed, {short} too many"
                ),
            )
        }
        _ => (0, format!("RLIMIT_MEMLOCK is 0, so nothing may be registered; {needed} are needed")),
    };
    Some(Finding {
        id: FindingId::MemlockTooSmall,
        severity: Severity::Error,
        text,
        source: limits(scope),
        value: Bytes(limit).to_string(),
        mend: raise(),
    })
}

/// Checks whether RLIMIT_MEMLOCK applies, and whether CAP_IPC_LOCK lifts it; no finding where the bytes that are wanted
/// fit.
fn capability(scope: &Scope<'_>, need: PinningNeed) -> Option<Finding> {
    let pinning = &scope.machine.pinning;
    let Ok(Limit::AtMost(limit)) = pinning.memlock.soft else { return None };
    let pinned_is_known = pinning.memlock.pinned_bytes.is_ok();
    if scope.wants.pin_bytes > 0 && pinned_is_known && pinning.memlock_cause(need).is_none() {
        return None;
    }
    let status = scope.machine.process.folder.join("status").display().to_string();
    let limit = Bytes(limit);
    match (&pinning.ipc_lock.effective, &pinning.ipc_lock.initial_user_namespace) {
        (Ok(true), Ok(true)) => None,
        (Ok(true), Ok(false)) => Some(Finding {
            id: FindingId::IpcLockNamespace,
            severity: Severity::Warning,
            text: format!(
                "CAP_IPC_LOCK is held in a user namespace of the container's own, where the kernel does not count it; so \
                 at most {limit} may be registered"
            ),
            source: scope.machine.process.folder.join("uid_map").display().to_string(),
            value: "not the initial user namespace".to_owned(),
            mend: Mend::new(
                "ulimit -l unlimited, before the container starts",
                "[Service] LimitMEMLOCK=infinity in the unit of the container runtime; no PrivateUsers=",
                "hostUsers: true, or a runtime whose unit has LimitMEMLOCK=infinity",
            ),
        }),
        (Ok(false), _) => Some(Finding {
            id: FindingId::NoIpcLock,
            severity: Severity::Warning,
            text: format!(
                "the process lacks CAP_IPC_LOCK, so at most {limit} may be registered (RLIMIT_MEMLOCK)"
            ),
            source: status,
            value: "CapEff without bit 14".to_owned(),
            mend: raise(),
        }),
        (Err(unknown), _) | (Ok(true), Err(unknown)) => {
            let effect = format!("it is open whether more than {limit} may be registered");
            Some(Finding::not_visible(FindingId::NoIpcLock, unknown, &effect))
        }
    }
}

fn memory(scope: &Scope<'_>, need: PinningNeed) -> Option<Finding> {
    let pinning = &scope.machine.pinning;
    let needed = Bytes(need.new_bytes(pinning.page_bytes));
    match pinning.memory_cause(need) {
        Some(PinningCause::MemoryCgroup { limit_file, limit_bytes, used_bytes, shortfall_bytes, .. }) => {
            let (used, short) = (Bytes(used_bytes), Bytes(shortfall_bytes));
            let lifted = if limit_file.ends_with("memory.max") { "max" } else { "-1" };
            let (file, limit) = (limit_file.display(), Bytes(limit_bytes));
            Some(Finding {
                id: FindingId::MemoryCgroup,
                severity: Severity::Error,
                text: format!(
                    "the memory cgroup is too small: {used} of {limit} are used, {needed} are needed, {short} too many; \
                     the kernel kills a process that goes beyond"
                ),
                source: file.to_string(),
                value: limit.to_string(),
                mend: Mend::new(
                    format!("as root, echo {lifted} > {file}"),
                    "[Service] MemoryMax=infinity",
                    "resources.limits.memory: the memory to register, and what the process needs beside it",
                ),
            })
        }
        Some(PinningCause::SystemMemory { available_bytes, shortfall_bytes }) => Some(Finding {
            id: FindingId::SystemMemory,
            severity: Severity::Error,
            text: format!(
                "the system is short of memory: {needed} are needed, {} too many",
                Bytes(shortfall_bytes)
            ),
            source: scope.machine.root.join("proc/meminfo").display().to_string(),
            value: format!("MemAvailable: {}", Bytes(available_bytes)),
            mend: Mend::new(
                "stop other programs, or give back huge pages (vm.nr_hugepages)",
                "the same; no setting of the unit limits this",
                "resources.requests.memory, for a node that has as much",
            ),
        }),
        _ if scope.wants.pin_bytes == 0 => None,
        _ => unseen(scope),
    }
}

/// Returns what could not be seen of the limits, where the memory would otherwise pass.
fn unseen(scope: &Scope<'_>) -> Option<Finding> {
    let pinning = &scope.machine.pinning;
    let effect = "it is open whether the memory to register fits";
    let unknown = match &pinning.memory_cgroups {
        Err(unknown) => unknown.clone(),
        Ok(hierarchy) => {
            let of_group = hierarchy.groups.iter().find_map(|group| match &group.limit {
                Err(unknown) => Some(unknown),
                Ok(Limit::Unlimited) => None,
                Ok(_) => group.used_bytes.as_ref().err().or(group.reclaimable_bytes.as_ref().err()),
            });
            let hidden = || {
                let file = &hierarchy.groups.last()?.limit_file;
                hierarchy
                    .ancestors_hidden
                    .then(|| NotKnown::new(file, "the cgroups above this one are hidden"))
            };
            of_group.cloned().or_else(|| pinning.available_bytes.as_ref().err().cloned()).or_else(hidden)?
        }
    };
    Some(Finding::not_visible(FindingId::MemoryCgroup, &unknown, effect))
}
