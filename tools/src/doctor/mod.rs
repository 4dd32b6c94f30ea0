//! `doctor`: everything that is wrong with the RDMA devices of a machine, and how to mend it; and with a peer, where
//! the path between two machines ends.

mod pair;

use anyhow::bail;
use pair::Pair;
use rdma_core::PortNum;
use rdma_core::doctor::{Finding, Severity, Wants};
use serde::Serialize;

use crate::cli::Doctor;
use crate::output::{say, say_json};
use crate::source;

/// A finding, for JSON.
#[derive(Debug, Serialize)]
struct Row<'a> {
    id: &'static str,
    severity: String,
    text: &'a str,
    source: &'a str,
    value: &'a str,
    shell: &'a str,
    unit: &'a str,
    pod: &'a str,
}

/// Everything, for JSON.
#[derive(Debug, Serialize)]
struct Report<'a> {
    findings: Vec<Row<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pair: Option<&'a Pair>,
}

/// Prints the findings, the worst first, and then the steps of the pair that was asked for.
///
/// # Errors
///
/// When a step fails, or a finding is an error, so that a script sees it by the exit status.
pub fn run(flags: &Doctor) -> anyhow::Result<()> {
    let findings = findings(flags);
    if !flags.common.format.json {
        say(text(&findings))?;
    }
    let pair = Pair::open(flags)?;
    match &pair {
        _ if flags.common.format.json => {
            say_json(&Report { findings: findings.iter().map(row).collect(), pair: pair.as_ref() })?;
        }
        Some(pair) => say(pair.text())?,
        None => {}
    }
    pair.as_ref().map_or(Ok(()), Pair::end)?;
    match findings.iter().filter(|finding| finding.severity == Severity::Error).count() {
        0 => Ok(()),
        1 => bail!("a finding is an error"),
        more => bail!("{more} findings are errors"),
    }
}

/// Looks at the machine for what this process wants.
fn findings(flags: &Doctor) -> Vec<Finding> {
    let mut wants = Wants::default();
    wants.device.clone_from(&flags.device);
    wants.port = flags.port.map(PortNum);
    wants.gid_index = flags.gid_index;
    wants.pin_bytes = flags.pin;
    wants.shm_bytes = flags.shm;
    wants.descriptors = flags.descriptors;
    wants.gpu_memory = flags.gpu;
    if flags.common.tree.root.is_none() {
        wants.variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
    }
    source::machine(&flags.common.tree).findings(&wants)
}

fn text(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return "nothing is wrong\n".to_owned();
    }
    findings.iter().map(|finding| format!("{finding}\n")).collect::<Vec<_>>().join("\n")
}

fn row(finding: &Finding) -> Row<'_> {
    let Finding { id, severity, text, source, value, mend, .. } = finding;
    Row {
        id: id.as_str(),
        severity: severity.to_string(),
        text,
        source,
        value,
        shell: &mend.shell,
        unit: &mend.unit,
        pod: &mend.pod,
    }
}
