//! Counters that speak of loss, congestion and bad links.
//!
//! They count since the driver was loaded, and are read once, so a count alone is no fault of today: each is a note.

use super::Scope;
use crate::doctor::finding::{Finding, Mend, Severity};
use crate::doctor::finding_id::FindingId;
use crate::doctor::{Counter, Port, RdmaDevice};

/// A group of counters that say one thing.
struct Group {
    id: FindingId,
    counters: &'static [&'static str],
    says: &'static str,
    shell: &'static str,
}

const GROUPS: [Group; 5] = [
    Group {
        id: FindingId::SequenceErrors,
        counters: &["packet_seq_err", "out_of_sequence", "rx_icrc_encapsulated", "duplicate_request"],
        says: "packets were lost or came out of order",
        shell: "look for drops on the switch; on RoCE, set up PFC or ECN on every hop (`mlnx_qos -i NETDEV`)",
    },
    Group {
        id: FindingId::AckTimeouts,
        counters: &["local_ack_timeout_err"],
        says: "requests were sent again, because no acknowledgement came in time",
        shell: "look for drops on the switch and for peers that hang; a longer timeout hides them (NCCL_IB_TIMEOUT)",
    },
    Group {
        id: FindingId::RnrRetries,
        counters: &["rnr_nak_retry_err"],
        says: "requests were sent again, because the peer had no receive ready",
        shell: "post receives earlier at the peer, or let the sender wait longer (RNR retries 7: without end)",
    },
    Group {
        id: FindingId::Congestion,
        counters: &["np_cnp_sent", "np_ecn_marked_roce_packets", "rp_cnp_handled"],
        says: "switches marked packets as congested, so senders slowed down",
        shell: "spread the load over more paths; compare the ECN thresholds of the switch",
    },
    Group {
        id: FindingId::LinkErrors,
        counters: &[
            "symbol_error",
            "link_error_recovery",
            "link_downed",
            "port_rcv_errors",
            "local_link_integrity_errors",
        ],
        says: "the link had errors or went down",
        shell: "clean or replace cable and transceiver; `mlxlink -d DEVICE -c` shows the bit errors",
    },
];

pub(super) fn check(scope: &Scope<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (device, port) in scope.ports() {
        findings.extend(GROUPS.iter().filter_map(|group| of_group(group, device, port)));
        findings.extend(port.counters_unread.iter().map(|unread| {
            let of_link = unread.path.ends_with("counters");
            let id = if of_link { FindingId::LinkErrors } else { FindingId::SequenceErrors };
            let effect = format!("it is open what port {} of {} has counted", port.number, device.name);
            Finding::not_visible(id, unread, &effect)
        }));
    }
    findings
}

fn of_group(group: &Group, device: &RdmaDevice, port: &Port) -> Option<Finding> {
    let counters: Vec<&Counter> =
        port.counters.iter().filter(|counter| group.counters.contains(&counter.name.as_str())).collect();
    let raised: Vec<_> = counters
        .iter()
        .filter_map(|counter| match &counter.value {
            Ok(value) if *value > 0 => Some((*counter, *value)),
            _ => None,
        })
        .collect();
    let Some((first, _)) = raised.first() else {
        let unknown = counters.iter().find_map(|counter| counter.value.as_ref().err())?;
        let effect = format!("it is open whether {} at port {} of {}", group.says, port.number, device.name);
        return Some(Finding::not_visible(group.id, unknown, &effect));
    };
    let values = raised.iter().map(|(counter, value)| format!("{} {value}", counter.name));
    Some(Finding {
        id: group.id,
        severity: Severity::Note,
        text: format!(
            "at port {} of {}, since the driver was loaded, {}; that is no present fault unless the count grows: read the \
             file before and after a run",
            port.number, device.name, group.says
        ),
        source: first.file.display().to_string(),
        value: values.collect::<Vec<_>>().join(", "),
        mend: Mend::on_host(group.shell),
    })
}
