//! The outcomes of a run: what it prints and counts.

use std::fmt;

/// The outcome of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The case held.
    Passed,
    /// The case did not hold, for this reason.
    Failed(String),
    /// A known deviation held instead, for this reason.
    Skipped(String),
}

/// The outcomes of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The outcome of each case, in the order of running.
    pub outcomes: Vec<(&'static str, Outcome)>,
}

impl Report {
    /// Counts the cases that passed, failed and were skipped.
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

    /// Returns the names of the failed cases.
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
