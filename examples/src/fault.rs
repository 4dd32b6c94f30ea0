//! Faults on demand, so that tests can hold that a program finds a wrong byte: the hidden flag `--fault`.

use rdma_core::fault::{Fault, FaultPlan, Rule};
use std::str::FromStr;

/// A byte of the so-manieth payload that arrives at this process's software device is flipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CorruptAt(u64);

impl CorruptAt {
    /// A plan that does nothing yet.
    pub fn plan(self) -> FaultPlan {
        FaultPlan::seeded(1)
    }

    /// Counts payloads from now on, unless one was corrupted already.
    pub fn arm(self, plan: &FaultPlan) {
        if plan.counts().corrupted == 0 {
            plan.clear();
            plan.add(Rule::new(Fault::Corrupt).nth(self.0));
        }
    }
}

impl FromStr for CorruptAt {
    type Err = String;

    /// Reads `corrupt@N`.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_prefix("corrupt@").and_then(|number| number.parse().ok());
        let number = number.filter(|&number| number > 0).map(Self);
        number.ok_or_else(|| "write corrupt@N, N counted from 1".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_from_the_command_line() {
        assert_eq!("corrupt@3".parse(), Ok(CorruptAt(3)));
        for text in ["corrupt", "corrupt@", "corrupt@0", "corrupt@-1", "drop@1", ""] {
            assert!(text.parse::<CorruptAt>().is_err(), "{text}");
        }
    }
}
