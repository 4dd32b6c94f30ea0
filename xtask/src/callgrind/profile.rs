//! Output of callgrind: the lines of each source file that ran, and the instructions of each function. The format is
//! described in Valgrind's manual, "Callgrind Format Specification"; only what `--compress-strings=no
//! --compress-pos=no` writes is read here.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::replace;

/// Lines that ran, by source file as the debug information names it.
pub type Lines = BTreeMap<String, BTreeSet<usize>>;

/// Reads one dump.
pub fn lines(dump: &str) -> Lines {
    let mut lines = Lines::new();
    let mut file = String::new();
    for line in dump.lines() {
        // `fl=`: file of the function that follows; `fi=` and `fe=`: file of inlined code and the return from it.
        let named = ["fl=", "fi=", "fe="].iter().find_map(|key| line.strip_prefix(key));
        if let Some(name) = named {
            name.clone_into(&mut file);
            continue;
        }
        // Costs of code: `LINE COST …`. Everything else has a key or is a header.
        let mut words = line.split(' ');
        let number = words.next().and_then(|word| word.parse::<usize>().ok());
        if let (Some(number), Some(_)) = (number, words.next()) {
            lines.entry(file.clone()).or_default().insert(number);
        }
    }
    lines
}

/// Instructions of each function in one dump, those of inlined functions with the function around them. Called
/// functions count by themselves.
pub fn costs(dump: &str) -> BTreeMap<String, u64> {
    let mut costs = BTreeMap::new();
    let mut function = "";
    let mut of_call = false;
    for line in dump.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            function = without_hash(name);
        } else if line.starts_with("calls=") {
            of_call = true;
        } else if let Some((position, cost)) = line.split_once(' ')
            && position.parse::<u64>().is_ok()
            && let Ok(cost) = cost.parse::<u64>()
            && !replace(&mut of_call, false)
        {
            *costs.entry(function.to_owned()).or_default() += cost;
        }
    }
    costs
}

/// Name of a function without the hash of its instance, which differs from tree to tree.
fn without_hash(name: &str) -> &str {
    let is_hash = |hash: &str| hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.rsplit_once("::h").filter(|(_, hash)| is_hash(hash)).map_or(name, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "version: 1\npositions: line\nevents: Ir\nsummary: 9\n\nfl=/a/x.rs\nfn=f\n10 3\nfi=/a/y.rs\n7 2\n\
                        fe=/a/x.rs\n12 1\ncfi=/a/z.rs\ncfn=g\ncalls=1 40\n13 500\n14 1\n\n\
                        fl=/a/z.rs\nfn=b::g::h0123456789abcdef\n40 500\n\ntotals: 507\n";

    #[test]
    fn instructions_count_where_they_ran() {
        assert_eq!(costs(DUMP), BTreeMap::from([("f".to_owned(), 7), ("b::g".to_owned(), 500)]));
        assert_eq!(without_hash("a::h12"), "a::h12");
    }

    #[test]
    fn code_calls_and_inlined_code_are_lines_that_ran() {
        let lines = lines(DUMP);
        assert_eq!(lines["/a/x.rs"], BTreeSet::from([10, 12, 13, 14]));
        assert_eq!(lines["/a/y.rs"], BTreeSet::from([7]));
        assert_eq!(lines["/a/z.rs"], BTreeSet::from([40]));
    }
}
