//! What the output of a program says, and what it must not say.

use crate::common::Ended;

/// Rows of nccl-tests' table that a rank has printed; fails the test when an element of one was wrong.
pub fn checked_rows(stdout: &str) -> usize {
    // The last line may be cut off by the kill.
    let whole = stdout.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let rows =
        whole.lines().filter(|line| line.trim_start().starts_with(|first: char| first.is_ascii_digit()));
    let rows = rows.inspect(|row| {
        let columns: Vec<&str> = row.split_whitespace().collect();
        let wrong = [columns.get(8), columns.get(12)];
        assert_eq!(wrong, [Some(&"0"), Some(&"0")], "wrong elements, or another table: {row}");
    });
    rows.count()
}

/// The error that a rank ended with, without its own name in front.
pub fn final_error(ended: &Ended, rank: u32) -> String {
    let last = ended.stderr.lines().last().unwrap_or_default();
    let own = format!("allreduce: rank {rank}: ");
    match last.strip_prefix(&own) {
        Some(error) => error.to_owned(),
        None => panic!("rank {rank} ends without an error of its own:\n{}", ended.stderr),
    }
}

/// All ranks that an error names, be it one after the other (`ranks 1, 2 and 5`).
pub fn named(error: &str) -> Vec<u32> {
    let mut ranks = Vec::new();
    for (at, word) in error.match_indices("rank") {
        let behind = &error[at + word.len()..];
        let mut list = behind.strip_prefix('s').unwrap_or(behind).strip_prefix(' ').unwrap_or_default();
        while let Some(digits) = list.find(|next: char| !next.is_ascii_digit()).or(Some(list.len()))
            && let Ok(rank) = list[..digits].parse()
        {
            ranks.push(rank);
            let behind = &list[digits..];
            let next = behind.strip_prefix(", ").or_else(|| behind.strip_prefix(" and "));
            list = next.unwrap_or_default();
        }
    }
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// Where a survivor was when it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In an operation, of which it says how much was outstanding, and when it went on last.
    Operation,
    /// In none.
    Between,
}

/// Where an error says that its rank was; fails the test when it does not, or says no more than that of an operation.
pub fn place(error: &str) -> Place {
    let Some((_, operation)) = error.split_once(" in all-reduce ") else {
        // The store is needed between operations alone: who serves it is lost with it, and who waits there for a rank
        // that does not come says so.
        let in_store =
            [" which serves the store, is lost", " did not come to "].iter().any(|text| error.contains(text));
        let between = error.contains("between operations") || in_store;
        assert!(between, "it says neither its operation nor that there was none: {error}");
        return Place::Between;
    };
    let words: Vec<&str> = operation.split_whitespace().collect();
    let [
        sequence,
        "of",
        count,
        _,
        _,
        "with",
        bytes,
        "bytes",
        "outstanding",
        "and",
        "the",
        "last",
        "progress",
        since,
        ago,
        ..,
    ] = words[..]
    else {
        panic!("no bytes outstanding, or no last progress: {error}");
    };
    let numbers = [sequence, count, bytes].iter().all(|number| number.parse::<u64>().is_ok());
    assert!(
        numbers && ago.starts_with("ago") && since.starts_with(|first: char| first.is_ascii_digit()),
        "{error}"
    );
    Place::Operation
}

#[test]
fn an_error_says_where_its_rank_was() {
    let inside = "rank 1 is lost in all-reduce 8 of 16385 float (sum), with 0 bytes outstanding and the last progress \
                  271.6us ago (lane)";
    assert_eq!(place(inside), Place::Operation);
    assert_eq!(place(&inside.replace(" ago (lane)", " ago; see rank 1")), Place::Operation);
    assert_eq!(place("rank 1 is lost between operations (lane)"), Place::Between);
}

#[test]
#[should_panic(expected = "no last progress")]
fn an_error_without_the_last_progress_fails() {
    place("rank 1 is lost in all-reduce 8 of 16385 float (sum), with 0 bytes outstanding (lane)");
}

#[test]
fn rows_are_counted_and_errors_searched_for_ranks() {
    let table = "# header\n  1024  256  float  sum  -1  1.2  0.85  0.85  0  1.1  0.93  0.93  0\n   2048  512";
    assert_eq!(checked_rows(table), 1);
    assert_eq!(named("rank 3 is lost; see rank 3"), [3]);
    assert_eq!(named("rank 2 says that rank 10 is"), [2, 10]);
    assert_eq!(named("ranks 4, 11 and 2 did not come, nor rank 7, 8"), [2, 4, 7, 8, 11]);
    assert!(named("ranks are 5, and a rank is none").is_empty());
}

#[test]
#[should_panic(expected = "wrong elements")]
fn rows_with_wrong_elements_fail() {
    checked_rows("  1024  256  float  sum  -1  1.2  0.85  0.85  0  1.1  0.93  0.93  4\n");
}
