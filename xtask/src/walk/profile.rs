//! Output of callgrind: the lines of each source file that ran. The format is described in Valgrind's manual,
//! "Callgrind Format Specification"; only what `--compress-strings=no --compress-pos=no` writes is read here.

use std::collections::{BTreeMap, BTreeSet};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_calls_and_inlined_code_are_lines_that_ran() {
        let dump = "version: 1\npositions: line\nevents: Ir\nsummary: 9\n\nfl=/a/x.rs\nfn=f\n10 3\nfi=/a/y.rs\n7 2\n\
                    fe=/a/x.rs\n12 1\ncfi=/a/z.rs\ncfn=g\ncalls=1 40\n13 500\n\ntotals: 9\n";
        let lines = lines(dump);
        assert_eq!(lines["/a/x.rs"], BTreeSet::from([10, 12, 13]));
        assert_eq!(lines["/a/y.rs"], BTreeSet::from([7]));
        assert_eq!(lines.len(), 2);
    }
}
