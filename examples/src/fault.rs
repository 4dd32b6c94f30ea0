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

/// The fault at one message that arrives at this process's first software device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultAt {
    /// A byte of a payload is flipped.
    Corrupt(CorruptAt),
    /// The device dies at the so-manieth message.
    Kill(u64),
}

impl FaultAt {
    /// A plan that does nothing yet.
    pub fn plan(self) -> FaultPlan {
        FaultPlan::seeded(1)
    }

    /// Counts messages from now on, unless it has struck already.
    pub fn arm(self, plan: &FaultPlan) {
        match self {
            Self::Corrupt(at) => at.arm(plan),
            Self::Kill(at) if plan.counts().killed == 0 => {
                plan.clear();
                plan.add(Rule::new(Fault::Kill).nth(at));
            }
            Self::Kill(_) => {}
        }
    }
}

impl FromStr for FaultAt {
    type Err = String;

    /// Reads `corrupt@N` and `kill@N`.
    fn from_str(text: &str) -> Result<Self, String> {
        let Some(number) = text.strip_prefix("kill@") else { return text.parse().map(Self::Corrupt) };
        let number = number.parse().ok().filter(|&number| number > 0).map(Self::Kill);
        number.ok_or_else(|| "write kill@N, N counted from 1".to_owned())
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
            assert!(text.parse::<FaultAt>().is_err(), "{text}");
        }
        assert_eq!("corrupt@3".parse(), Ok(FaultAt::Corrupt(CorruptAt(3))));
        assert_eq!("kill@3".parse(), Ok(FaultAt::Kill(3)));
        for text in ["kill@", "kill@0", "kill@x"] {
            assert!(text.parse::<FaultAt>().unwrap_err().contains("kill@N"), "{text}");
        }
    }
}
