//! Tests that failed are repeated by themselves, so that one that a busy machine has held up is told from one that
//! fails. It is told in the table: such a test is to be mended too.

use crate::tally::Row;

/// How often a test that has failed must pass then, each time.
const TIMES: u32 = 3;
/// More failed tests than these are no accident: none is repeated.
const AT_MOST: usize = 3;

/// What came of the tests of one executable.
pub struct End {
    /// How many did what.
    pub row: Row,
    /// Those that failed.
    pub failed: Vec<String>,
}

/// The tests that the harness names as failed, at the end of its output.
pub fn named(output: &str) -> Vec<String> {
    let lines: Vec<&str> = output.lines().collect();
    let Some(list) = lines.iter().rposition(|line| *line == "failures:") else { return Vec::new() };
    let names = lines[list + 1..].iter().map_while(|line| line.strip_prefix("    "));
    names.map(str::to_owned).collect()
}

/// Has `pass` repeat those that failed, by the index of their executable; the ones that pass each time count as
/// passed, and are named in the note that is returned.
pub fn failed(ends: &mut [End], mut pass: impl FnMut(usize, &[String]) -> bool) -> String {
    let all: usize = ends.iter().map(|end| end.row.counts.failed as usize).sum();
    if all > AT_MOST {
        return String::new();
    }
    let mut passed = Vec::new();
    for (index, end) in ends.iter_mut().enumerate() {
        // An executable that ended before it named them all says less than happened.
        let told = end.row.counts.failed > 0 && end.row.counts.failed as usize == end.failed.len();
        if told && (0..TIMES).all(|_| pass(index, &end.failed)) {
            end.row.counts.passed += end.row.counts.failed;
            end.row.counts.failed = 0;
            passed.append(&mut end.failed);
        }
    }
    match passed.is_empty() {
        true => String::new(),
        false => format!("failed once and passed {TIMES} times alone: {}", passed.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Counts;

    fn end(failed: u32, names: &[&str]) -> End {
        End {
            row: Row {
                suite: "suite".to_owned(),
                counts: Counts { passed: 5, failed, skipped: 0 },
                note: String::new(),
            },
            failed: names.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    #[test]
    fn the_last_list_of_the_harness_names_them() {
        let output = "failures:\n\n---- a::b stdout ----\nfailures:\n    not this\n\n\nfailures:\n    a::b\n    c\n\n\
            test result: FAILED. 1 passed; 2 failed; 0 ignored\n";
        assert_eq!(named(output), ["a::b", "c"]);
        assert!(named("test result: ok. 1 passed; 0 failed; 0 ignored\n").is_empty());
    }

    #[test]
    fn one_that_passes_each_time_counts_as_passed_and_is_named() {
        let mut ends = [end(0, &[]), end(1, &["a::b"])];
        let mut runs = 0;
        let note = failed(&mut ends, |index, names| {
            runs += 1;
            index == 1 && names == ["a::b"]
        });
        assert_eq!(runs, TIMES);
        assert_eq!(note, "failed once and passed 3 times alone: a::b");
        assert_eq!(ends[1].row.counts, Counts { passed: 6, failed: 0, skipped: 0 });
    }

    #[test]
    fn one_that_fails_again_has_failed() {
        let mut ends = [end(1, &["a"])];
        let mut runs = 0;
        let note = failed(&mut ends, |_, _| {
            runs += 1;
            runs < TIMES
        });
        assert_eq!((note.as_str(), ends[0].row.counts.failed), ("", 1));
    }

    #[test]
    fn neither_many_nor_those_that_are_not_named_are_repeated() {
        let mut many = [end(2, &["a", "b"]), end(2, &["c", "d"])];
        assert_eq!(failed(&mut many, |_, _| true), "");
        let mut unnamed = [end(1, &[])];
        assert_eq!(failed(&mut unnamed, |_, _| true), "");
        assert_eq!((many[0].row.counts.failed, unnamed[0].row.counts.failed), (2, 1));
    }
}
