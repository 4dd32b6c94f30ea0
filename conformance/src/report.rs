//! What a run prints and counts.

use std::fmt;

/// What became of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It held.
    Passed,
    /// It did not hold.
    Failed(String),
    /// It was not asked of this device; says why, with the source.
    Skipped(String),
}

/// What became of all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// By name, in the order of running.
    pub outcomes: Vec<(&'static str, Outcome)>,
}

impl Report {
    /// How many passed, failed and were skipped.
    #[must_use]
    pub fn counts(&self) -> (usize, usize, usize) {
        let count =
            |kind: fn(&Outcome) -> bool| self.outcomes.iter().filter(|(_, outcome)| kind(outcome)).count();
        (
            count(|outcome| *outcome == Outcome::Passed),
            count(|outcome| matches!(outcome, Outcome::Failed(_))),
            count(|outcome| matches!(outcome, Outcome::Skipped(_))),
        )
    }

    /// The names of those that failed.
    #[must_use]
    pub fn failed(&self) -> Vec<&'static str> {
        self.outcomes
            .iter()
            .filter(|(_, outcome)| matches!(outcome, Outcome::Failed(_)))
            .map(|(name, _)| *name)
            .collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, failed, skipped) = self.counts();
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}
