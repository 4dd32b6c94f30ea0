//! Findings of the doctor below the error of a refused device or registration.

use anyhow::Error;
use rdma_collective::env::{NcclOptions, SelectedDevice};
use rdma_core::doctor::{Finding, Machine, Refusal, Wants};
use std::ffi::OsString;
use std::fmt;

/// Findings that bear on an error, as a part of its context. [`output::end`](crate::output::end) prints them below it.
#[derive(Debug)]
pub struct Findings(Vec<Finding>);

impl Findings {
    /// The findings, a block of lines each.
    pub fn text(&self) -> String {
        self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }
}

/// Prints nothing, because an error with its context is one line, and findings have several.
impl fmt::Display for Findings {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

/// Adds to the error of a device's choice the findings that bear on it. `wanted` is a name, `auto`, `rdma`, or the name
/// of a software device, of which the machine knows nothing.
pub fn explain_choice(error: impl Into<Error>, wanted: &str, wants: &Wants) -> Error {
    if wanted.starts_with("soft") {
        return error.into();
    }
    let name = Some(wanted.to_owned()).filter(|name| name != "auto" && name != "rdma");
    explain(error, &Refusal::Device { name }, wants)
}

/// Returns the wants of a process that reads NCCL's variables.
pub fn wants(nccl: &NcclOptions) -> Wants {
    let text = |value: OsString| value.into_string().ok();
    let mut wants = Wants::default();
    wants.variables = std::env::vars_os().filter_map(|(n, v)| Some((text(n)?, text(v)?))).collect();
    if !wants.variables.contains_key("NCCL_IB_GID_INDEX") {
        wants.gid_index = nccl.gid_index; // from a file
    }
    wants
}

/// Devices in use, to explain what they refuse.
#[derive(Debug)]
pub struct InUse {
    wants: Wants,
    /// Whether all are software devices, of which the machine knows nothing.
    soft: bool,
}

impl InUse {
    /// The devices that were chosen, and the wants that they were chosen by.
    pub fn new(devices: &[&SelectedDevice], mut wants: Wants) -> Self {
        let names: Vec<_> = devices.iter().filter(|device| !device.context.is_soft()).collect();
        if let [device] = &names[..] {
            wants.device = Some(device.context.name().to_owned());
            wants.port = Some(device.port.port);
        }
        Self { wants, soft: names.is_empty() }
    }

    /// Adds to an error the findings that bear on it; most errors are no refusal, and stay as they are.
    pub fn explain(&self, error: impl Into<Error>) -> Error {
        let error = error.into();
        match Refusal::of(error.as_ref()) {
            Some(refusal) if !self.soft => explain(error, &refusal, &self.wants),
            _ => error,
        }
    }
}

fn explain(error: impl Into<Error>, refusal: &Refusal, wants: &Wants) -> Error {
    with_findings(error.into(), Machine::read("/").bearing_on(refusal, wants))
}

fn with_findings(error: Error, findings: Vec<Finding>) -> Error {
    if findings.is_empty() { error } else { error.context(Findings(findings)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::in_a_line;

    #[test]
    fn findings_stay_out_of_the_line_of_the_error() {
        let mut wants = Wants::default();
        wants.variables.insert("NCCL_IB_GID_INDEX".to_owned(), "three".to_owned());
        let findings = Machine::read("/not/there").findings(&wants);
        let texts = findings.len();
        let error = with_findings(Error::msg("no GID at index 3"), findings).context("write_bw");
        assert_eq!(in_a_line(&error), "write_bw: no GID at index 3");
        let below = error.downcast_ref::<Findings>().unwrap().text();
        assert!(below.starts_with("error: nccl-value-invalid: NCCL_IB_GID_INDEX is not a number"), "{below}");
        assert_eq!(below.lines().count(), 5 * texts, "{below}");
    }
}
