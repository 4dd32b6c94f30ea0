//! The verdict on a program's output: lines that must be there, and lines that must not.

use crate::common::Ended;
use examples::collectives::Collective;

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
pub fn final_error(ended: &Ended, collective: Collective, rank: u32) -> String {
    let last = ended.stderr.lines().last().unwrap_or_default();
    let own = format!("{}: rank {rank}: ", collective.name());
    match last.strip_prefix(&own) {
        Some(error) => error.to_owned(),
        None => panic!("rank {rank} ends without an error of its own:\n{}", ended.stderr),
    }
}

/// All ranks at fault that an error names, also in a list (`ranks 1, 2 and 5`).
///
/// The root in an operation's name is not at fault, and neither is the rank that reported the fault.
pub fn named(error: &str) -> Vec<u32> {
    let mut ranks = Vec::new();
    let error = &without_root(error).replace("reported by rank ", "reported by ");
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

/// The error, without the root that an operation is called after (`in gather 8 of 5 float to rank 2, with …`).
fn without_root(error: &str) -> String {
    let pieces = error.split(", with ").map(|piece| {
        let of_root = |(_, root): &(&str, &str)| root.bytes().all(|digit| digit.is_ascii_digit());
        let named = [" from rank ", " to rank "].iter().find_map(|by| piece.rsplit_once(by).filter(of_root));
        named.map_or(piece, |(operation, _)| operation)
    });
    pieces.collect::<Vec<_>>().join(", with ")
}

/// Where a survivor was when it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In an operation, of which it says how much was outstanding, and when it went on last.
    Operation,
    /// In none.
    Between,
}

/// How errors call its operations.
fn operations(collective: Collective) -> &'static [&'static str] {
    match collective {
        Collective::AllReduce => &["all-reduce"],
        Collective::AllGather => &["all-gather"],
        Collective::ReduceScatter => &["reduce-scatter"],
        Collective::Broadcast => &["broadcast"],
        Collective::Reduce => &["reduce"],
        Collective::AllToAll => &["all-to-all"],
        Collective::Gather => &["gather"],
        Collective::Scatter => &["scatter"],
        Collective::SendRecv => &["send", "receive"],
    }
}

/// Where an error says that its rank was; fails the test when it does not, or says no more than that of an operation.
pub fn place(error: &str, collective: Collective) -> Place {
    let inside = |name| error.split_once(&format!(" in {name} "));
    let Some((_, operation)) = operations(collective).iter().find_map(inside) else {
        // The store is needed between operations alone: who serves it is lost with it, and who waits there for a rank
        // that does not come says so.
        let in_store =
            [" which serves the store, is lost", " did not come to "].iter().any(|text| error.contains(text));
        let texts = ["between operations", "No operation was running here"];
        let between = in_store || texts.iter().any(|text| error.contains(text));
        assert!(between, "it says neither its operation nor that there was none: {error}");
        return Place::Between;
    };
    let outstanding = operation
        .split_once(", with ")
        .and_then(|(of, rest)| Some((of, rest.split_once(" bytes outstanding")?)));
    let Some((of, (bytes, rest))) = outstanding else { panic!("no bytes outstanding: {error}") };
    let Some((since, _)) =
        rest.strip_prefix(" and the last progress ").and_then(|rest| rest.split_once(" ago"))
    else {
        panic!("no last progress: {error}");
    };
    let Some((sequence, count)) = of.split_once(" of ") else { panic!("no count: {error}") };
    let count = count.split(' ').next().unwrap_or_default();
    let numbers = [sequence, count, bytes].iter().all(|number| number.parse::<u64>().is_ok());
    assert!(numbers && since.starts_with(|first: char| first.is_ascii_digit()), "{error}");
    Place::Operation
}

#[test]
fn an_error_says_where_its_rank_was() {
    let all_reduce = |error: &str| place(error, Collective::AllReduce);
    let inside = "rank 1 is lost in all-reduce 8 of 16385 float (sum), with 0 bytes outstanding and the last progress \
                  271.6us ago (lane)";
    assert_eq!(all_reduce(inside), Place::Operation);
    assert_eq!(all_reduce(&inside.replace(" ago (lane)", " ago; see rank 1")), Place::Operation);
    assert_eq!(all_reduce("rank 1 is lost between operations (lane)"), Place::Between);
    assert_eq!(
        all_reduce("aborted: rank 1 failed. No operation was running here. See rank 1"),
        Place::Between
    );
    let of_a_root = inside.replace("all-reduce", "gather").replace("float (sum)", "float to rank 2");
    assert_eq!(place(&of_a_root, Collective::Gather), Place::Operation);
}

#[test]
#[should_panic(expected = "no last progress")]
fn an_error_without_the_last_progress_fails() {
    place(
        "rank 1 is lost in all-reduce 8 of 16385 float (sum), with 0 bytes outstanding (lane)",
        Collective::AllReduce,
    );
}

#[test]
#[should_panic(expected = "neither its operation")]
fn an_error_in_an_operation_of_another_collective_fails() {
    let error = "rank 1 is lost in gather 8 of 5 float to rank 0, with 0 bytes outstanding and the last progress 1us ago";
    place(error, Collective::Scatter);
}

#[test]
fn rows_are_counted_and_errors_searched_for_ranks() {
    let table = "# header\n  1024  256  float  sum  -1  1.2  0.85  0.85  0  1.1  0.93  0.93  0\n   2048  512";
    assert_eq!(checked_rows(table), 1);
    assert_eq!(named("rank 3 is lost; see rank 3"), [3]);
    assert_eq!(
        named("aborted: rank 3 failed (reported by rank 1: the link failed). See the log of rank 3"),
        [3]
    );
    assert_eq!(named("rank 2 says that rank 10 is"), [2, 10]);
    assert_eq!(named("ranks 4, 11 and 2 did not come, nor rank 7, 8"), [2, 4, 7, 8, 11]);
    assert!(named("ranks are 5, and a rank is none").is_empty());
    assert_eq!(named("rank 1 is lost in gather 8 of 5 float to rank 2, with 0 bytes outstanding"), [1]);
    assert_eq!(named("rank 2 is lost in scatter 8 of 5 float from rank 2, with 0 bytes outstanding"), [2]);
}

#[test]
#[should_panic(expected = "wrong elements")]
fn rows_with_wrong_elements_fail() {
    checked_rows("  1024  256  float  sum  -1  1.2  0.85  0.85  0  1.1  0.93  0.93  4\n");
}
