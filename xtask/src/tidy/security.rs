//! The tables of `SECURITY.md` and `docs/trust.md`: each cell that promises something names a test that exists, and
//! each other cell says what to do instead.
//!
//! A promise begins with "no" and names its tests in backticks. The other cells begin with "yes", and the advice
//! follows a colon. A dash stands where there is nothing to attack.

use std::collections::BTreeSet;

use super::Finding;

/// The documents.
pub const PATHS: [&str; 2] = ["SECURITY.md", "docs/trust.md"];
/// The first column of the header of a table that is checked.
const WHO: &str = "who";

/// End of the signature of a case of the conformance suite.
const CASE: &str = "(lab: &Lab) -> CaseResult {";

/// Collects the names of the tests in a file, and of the cases of the conformance suite.
pub fn tests(text: &str, names: &mut BTreeSet<String>) {
    let mut lines = text.lines().map(str::trim_start);
    while let Some(line) = lines.next() {
        if let Some(case) = line.strip_prefix("fn ").and_then(|line| line.strip_suffix(CASE)) {
            names.insert(case.to_owned());
        }
        if line != "#[test]" {
            continue;
        }
        let function =
            lines.by_ref().find_map(|line| line.strip_prefix("fn ").or(line.strip_prefix("pub fn ")));
        if let Some((name, _)) = function.and_then(|line| line.split_once('(')) {
            names.insert(name.to_owned());
        }
    }
}

/// Checks the tables of the document at `path` against the names of all tests.
pub fn check(path: &str, text: &str, tests: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut inside, mut cells) = (false, 0);
    for (index, line) in text.lines().enumerate() {
        let Some(row) = line.trim().strip_prefix('|').and_then(|row| row.strip_suffix('|')) else {
            inside = false;
            continue;
        };
        let mut columns = row.split('|').map(str::trim);
        let first = columns.next().unwrap_or_default();
        inside |= first == WHO;
        if !inside || first == WHO || first.starts_with('-') {
            continue;
        }
        for cell in columns {
            cells += 1;
            if let Some(message) = fault_of(cell, tests) {
                findings.push(Finding { path: path.to_owned(), line: index + 1, message });
            }
        }
    }
    if cells == 0 {
        let message = format!("no table whose first column is called `{WHO}`");
        findings.push(Finding { path: path.to_owned(), line: 0, message });
    }
    findings
}

fn fault_of(cell: &str, tests: &BTreeSet<String>) -> Option<String> {
    if cell == "\u{2013}" {
        return None;
    }
    if cell.starts_with("yes") {
        let advice = cell.split_once(':').map_or("", |(_, advice)| advice.trim());
        return advice.is_empty().then(|| format!("`{cell}` does not say what to do instead, after a colon"));
    }
    if !cell.starts_with("no") {
        return Some(format!("`{cell}` begins with neither `no` nor `yes`"));
    }
    let named: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
    match named.iter().find(|name| !tests.contains(**name)) {
        Some(name) => Some(format!("there is no test `{name}`")),
        None if named.is_empty() => Some(format!("`{cell}` is a promise and names no test")),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(cell: &str) -> Vec<String> {
        let mut names = BTreeSet::new();
        tests("#[test]\n#[ignore = \"device\"]\nfn a_key_is_checked() {\n", &mut names);
        let text = format!("| who | read |\n|---|---|\n| a stranger | {cell} |\n");
        check("SECURITY.md", &text, &names).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_promise_names_a_test_that_exists_and_anything_else_advises() {
        for cell in ["no: `a_key_is_checked`", "yes: use a token", "\u{2013}"] {
            assert_eq!(faults(cell), Vec::<String>::new(), "{cell}");
        }
        for (cell, fault) in [
            ("no: `a_key_is_believed`", "there is no test `a_key_is_believed`"),
            ("no", "names no test"),
            ("yes", "does not say what to do instead"),
            ("perhaps", "neither `no` nor `yes`"),
        ] {
            let told = faults(cell);
            assert!(told.len() == 1 && told[0].contains(fault), "{cell}: {told:?}");
        }
    }

    #[test]
    fn a_document_without_a_table_is_refused() {
        assert_eq!(check("SECURITY.md", "no table\n", &BTreeSet::new()).len(), 1);
    }
}
