//! `doctor`: everything that is wrong with the RDMA devices of a machine, and how to mend it.

use anyhow::bail;
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

/// Prints the findings, the worst first.
///
/// # Errors
///
/// When a finding is an error, so that a script sees it by the exit status.
pub fn run(flags: &Doctor) -> anyhow::Result<()> {
    if flags.peer.is_some() || flags.listen.is_some() {
        bail!("this build looks at one host, and has no --peer and --listen");
    }
    let mut wants = Wants::default();
    wants.device.clone_from(&flags.device);
    if flags.tree.root.is_none() {
        wants.variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
    }
    let findings = source::machine(&flags.tree).findings(&wants);
    if flags.format.json {
        say_json(&findings.iter().map(row).collect::<Vec<_>>())?;
    } else if findings.is_empty() {
        say("nothing is wrong\n")?;
    } else {
        let texts: Vec<_> = findings.iter().map(|finding| format!("{finding}\n")).collect();
        say(texts.join("\n"))?;
    }
    match findings.iter().filter(|finding| finding.severity == Severity::Error).count() {
        0 => Ok(()),
        1 => bail!("a finding is an error"),
        more => bail!("{more} findings are errors"),
    }
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
