//! How many tests ran where: counts read from what suites print, and the closing table.

use std::fmt::Write;

/// The tests of one suite.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tests that passed.
    pub passed: u32,
    /// Tests that failed.
    pub failed: u32,
    /// Tests that did not run.
    pub skipped: u32,
}

/// A line of the closing table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The suite, and where it ran.
    pub suite: String,
    /// How many.
    pub counts: Counts,
    /// Why it failed or was skipped, where that is not the tests' own matter.
    pub note: String,
}

impl Counts {
    /// A single test that passed.
    pub const ONE_PASSED: Counts = Counts { passed: 1, failed: 0, skipped: 0 };
    /// A single test that failed.
    pub const ONE_FAILED: Counts = Counts { passed: 0, failed: 1, skipped: 0 };
    /// A single test that did not run.
    pub const ONE_SKIPPED: Counts = Counts { passed: 0, failed: 0, skipped: 1 };

    /// Both together.
    pub fn plus(self, other: Counts) -> Counts {
        Counts {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }

    /// The counts that a suite printed: the last line `N passed, N failed, N skipped`, or the sum of all the lines
    /// `test result: ok. N passed; N failed; N ignored; …` of Rust's test harness. `None` when it printed neither.
    pub fn read(output: &str) -> Option<Counts> {
        if let Some(counts) = output.lines().rev().find_map(closing_line) {
            return Some(counts);
        }
        output.lines().filter_map(harness_line).reduce(Counts::plus)
    }

    /// The counts of a suite that ended: those it printed, and a failure when its status says otherwise.
    pub fn of_run(output: &str, succeeded: bool) -> Counts {
        match (Counts::read(output), succeeded) {
            (None, true) => Counts::ONE_PASSED,
            (None, false) => Counts::ONE_FAILED,
            (Some(counts), false) if counts.failed == 0 => counts.plus(Counts::ONE_FAILED),
            (Some(counts), _) => counts,
        }
    }
}

/// The closing table, and its last line over all suites.
pub fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.suite.chars().count()).max().unwrap_or(0).max("suite".len());
    let mut text = format!("{:<width$} {:>7} {:>7} {:>7}\n", "suite", "passed", "failed", "skipped");
    for Row { suite, counts, note } in rows {
        let Counts { passed, failed, skipped } = counts;
        let note = if note.is_empty() { String::new() } else { format!("  {note}") };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{suite:<width$} {passed:>7} {failed:>7} {skipped:>7}{note}");
    }
    let Counts { passed, failed, skipped } =
        rows.iter().map(|row| row.counts).fold(Counts::default(), Counts::plus);
    let _ = write!(text, "{passed} passed, {failed} failed, {skipped} skipped");
    text
}

/// `N passed, N failed, N skipped`, and nothing after it.
fn closing_line(line: &str) -> Option<Counts> {
    let mut parts = line.trim().split(", ");
    let counts = Counts {
        passed: number(parts.next()?, "passed")?,
        failed: number(parts.next()?, "failed")?,
        skipped: number(parts.next()?, "skipped")?,
    };
    parts.next().is_none().then_some(counts)
}

fn harness_line(line: &str) -> Option<Counts> {
    let (_, rest) = line.trim().strip_prefix("test result: ")?.split_once(". ")?;
    let mut parts = rest.split("; ");
    Some(Counts {
        passed: number(parts.next()?, "passed")?,
        failed: number(parts.next()?, "failed")?,
        skipped: number(parts.next()?, "ignored")?,
    })
}

fn number(part: &str, word: &str) -> Option<u32> {
    part.trim().strip_suffix(word)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn counts(passed: u32, failed: u32, skipped: u32) -> Counts {
        Counts { passed, failed, skipped }
    }

    #[test]
    fn the_harness_speaks_once_for_each_executable() {
        let output = "running 2 tests\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(Counts::read(output), Some(counts(5, 1, 1)));
    }

    #[test]
    fn the_closing_line_wins() {
        let output =
            "60 passed, 2 failed, 1 skipped\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured\n";
        assert_eq!(Counts::read(output), Some(counts(60, 2, 1)));
        assert_eq!(Counts::read("case: 3 passed, 4 failed, 5 skipped\n"), None);
    }

    #[test]
    fn a_status_that_contradicts_the_counts_is_a_failure() {
        assert_eq!(Counts::of_run("3 passed, 0 failed, 0 skipped\n", false), counts(3, 1, 0));
        assert_eq!(Counts::of_run("", false), Counts::ONE_FAILED);
        assert_eq!(Counts::of_run("", true), Counts::ONE_PASSED);
        assert_eq!(Counts::of_run("3 passed, 1 failed, 0 skipped\n", true), counts(3, 1, 0));
    }

    #[test]
    fn the_table_ends_in_the_sum() {
        let row = |suite: &str, counts| Row { suite: suite.to_owned(), counts, note: String::new() };
        let text = table(&[row("workspace", counts(5, 0, 1)), row("soft-RoCE", counts(7, 2, 0))]);
        assert_eq!(text.lines().last(), Some("12 passed, 2 failed, 1 skipped"));
        assert_eq!(closing_line("12 passed, 2 failed, 1 skipped"), Some(counts(12, 2, 1)));
    }
}
