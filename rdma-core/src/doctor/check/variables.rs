//! NCCL's variables: values that match nothing, cannot be read, or were left over.

use super::{Scope, list};
use crate::NameFilter;
use crate::doctor::finding::{Finding, Mend, Severity};
use crate::doctor::finding_id::FindingId;
use crate::doctor::wants::number;

/// Variables of NCCL that are numbers, with the smallest and the largest that the library takes.
const NUMBERS: [(&str, u32, u32); 8] = [
    ("NCCL_IB_DISABLE", 0, 1),
    ("NCCL_IB_GID_INDEX", 0, 255),
    ("NCCL_IB_QPS_PER_CONNECTION", 1, 128),
    ("NCCL_IB_RETRY_CNT", 0, 7),
    ("NCCL_IB_ROCE_VERSION_NUM", 1, 2),
    ("NCCL_IB_SL", 0, 15),
    ("NCCL_IB_TC", 0, 255),
    ("NCCL_IB_TIMEOUT", 1, 31),
];

pub(super) fn check(scope: &Scope<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(empty(scope));
    findings.extend(hca(scope));
    findings.extend(socket_ifname(scope));
    findings.extend(NUMBERS.iter().filter_map(|(name, from, to)| out_of_range(scope, name, *from, *to)));
    findings.extend(address_family(scope));
    if let Some(value) = scope.wants.variable("NCCL_IB_DISABLE").filter(|value| number(value) == Some(1)) {
        let text = "NCCL_IB_DISABLE keeps the process off the RDMA devices, so it uses sockets".to_owned();
        findings.push(finding(FindingId::NcclIbDisabled, Severity::Warning, "NCCL_IB_DISABLE", value, text));
    }
    findings
}

fn finding(id: FindingId, severity: Severity, name: &str, value: &str, text: String) -> Finding {
    let mend = Mend::new(
        format!("unset {name}, or set it as said above"),
        format!("[Service] UnsetEnvironment={name}, or Environment={name}=…"),
        format!("remove {name} from env, or set it as said above"),
    );
    Finding { id, severity, text, source: format!("${name}"), value: format!("{value:?}"), mend }
}

/// Variables that are set and empty.
fn empty(scope: &Scope<'_>) -> Vec<Finding> {
    let nccl = scope.wants.variables.iter().filter(|(name, _)| name.starts_with("NCCL_"));
    let empty = nccl.filter(|(_, value)| value.trim().is_empty());
    empty
        .map(|(name, value)| {
            let text = format!(
                "{name} is set and empty; here that means unset, for NCCL it may mean something else"
            );
            finding(FindingId::NcclEmpty, Severity::Warning, name, value, text)
        })
        .collect()
}

fn invalid(name: &str, value: &str, grammar: &str) -> Finding {
    finding(FindingId::NcclInvalid, Severity::Error, name, value, format!("{name} is not {grammar}"))
}

fn hca(scope: &Scope<'_>) -> Option<Finding> {
    const NAME: &str = "NCCL_IB_HCA";
    let value = scope.wants.variable(NAME)?;
    let Some(filter) = NameFilter::devices(value) else {
        return Some(invalid(NAME, value, "a list of devices, such as mlx5_0:1,mlx5_1 or ^mlx5_2"));
    };
    let devices = scope.machine.devices.as_ref().ok()?;
    let takes = devices.iter().any(|device| match &device.ports {
        Ok(ports) => ports.iter().any(|port| filter.takes(&device.name, Some(port.number.0))),
        Err(_) => filter.takes(&device.name, None),
    });
    let text = || {
        let names = list(devices.iter().map(|device| &device.name));
        format!("NCCL_IB_HCA takes no port of any device; the devices are: {names}")
    };
    (!takes).then(|| finding(FindingId::NcclHca, Severity::Error, NAME, value, text()))
}

fn socket_ifname(scope: &Scope<'_>) -> Option<Finding> {
    const NAME: &str = "NCCL_SOCKET_IFNAME";
    let value = scope.wants.variable(NAME)?;
    let Some(filter) = NameFilter::interfaces(value) else {
        return Some(invalid(NAME, value, "a list of interfaces, such as eth0 or ^docker,lo"));
    };
    let netdevs = match &scope.machine.netdevs {
        Ok(netdevs) => netdevs,
        Err(unknown) => {
            let effect = "it is open whether NCCL_SOCKET_IFNAME takes an interface";
            return Some(Finding::not_visible(FindingId::NcclSocketIfname, unknown, effect));
        }
    };
    let text = || {
        let names = list(netdevs.iter().map(|netdev| &netdev.name));
        format!("NCCL_SOCKET_IFNAME takes no interface of this network namespace, which has: {names}")
    };
    let takes = netdevs.iter().any(|netdev| filter.takes(&netdev.name, None));
    (!takes).then(|| finding(FindingId::NcclSocketIfname, Severity::Error, NAME, value, text()))
}

/// A number that the library would refuse; -1 means unset.
fn out_of_range(scope: &Scope<'_>, name: &str, from: u32, to: u32) -> Option<Finding> {
    let value = scope.wants.variable(name)?;
    let readable = value == "-1" || number(value).is_some_and(|number| (from..=to).contains(&number));
    (!readable)
        .then(|| invalid(name, value, &format!("a number from {from} to {to}, nor -1 for the default")))
}

fn address_family(scope: &Scope<'_>) -> Option<Finding> {
    const NAME: &str = "NCCL_IB_ADDR_FAMILY";
    let value = scope.wants.variable(NAME)?;
    (!["AF_INET", "AF_INET6"].contains(&value)).then(|| invalid(NAME, value, "AF_INET or AF_INET6"))
}
