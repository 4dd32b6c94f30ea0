//! Faults on demand, so that tests can hold that a wrong byte is found: one payload is corrupted at rank 0.

use rdma_core::fault::{Fault, FaultPlan, Rule};

/// A byte of the `at`th payload that arrives after the checks began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CorruptAt(u64);

/// Reads `corrupt@N`.
///
/// # Errors
///
/// Says what can be read.
pub fn parse(text: &str) -> Result<CorruptAt, String> {
    let number = text.strip_prefix("corrupt@").and_then(|number| number.parse().ok());
    number
        .filter(|&number| number > 0)
        .map(CorruptAt)
        .ok_or_else(|| "write corrupt@N, N counted from 1".to_owned())
}

/// A plan that does nothing yet.
pub fn plan(_: &CorruptAt) -> FaultPlan {
    FaultPlan::seeded(1)
}

/// Counts from now on.
pub fn arm(plan: &FaultPlan, fault: CorruptAt) {
    plan.add(Rule::new(Fault::Corrupt).nth(fault.0));
}
