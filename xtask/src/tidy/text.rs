//! Rules for the text and the name of any file, Rust or not.

use super::Finding;

/// Endings of files that editors, merges and snapshot tools leave behind.
const LEFTOVERS: [&str; 6] = [".orig", ".rej", ".bak", ".swp", ".pending-snap", ".snap.new"];

/// Beginnings of paths that only one machine has, in two halves each, because this file is checked too.
const MACHINE_PATHS: [(&str, &str); 4] = [("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/"), ("/Us", "ers/")];

/// Checks the name of a file.
pub fn check_name(path: &str) -> Option<Finding> {
    let leftover = LEFTOVERS.iter().find(|end| path.ends_with(*end))?;
    let message = format!("a leftover (`*{leftover}`): delete it");
    Some(Finding { path: path.to_owned(), line: 0, message })
}

/// Checks the lines of a file.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut found =
            |message: String| findings.push(Finding { path: path.to_owned(), line: index + 1, message });
        if let Some(start) = machine_path(line) {
            found(format!("a path of one machine (`{start}…`): make it relative, or ask the environment"));
        }
        if ["<<<<<<< ", ">>>>>>> "].iter().any(|mark| line.starts_with(mark)) {
            found("a merge that was not finished".to_owned());
        }
        if path.ends_with(".rs") && line.ends_with([' ', '\t']) {
            found("blanks at the end of the line".to_owned());
        }
    }
    findings
}

/// Beginning of a path that only one machine has. A path that merely contains such a folder (`target/home/x`) is fine.
fn machine_path(line: &str) -> Option<String> {
    MACHINE_PATHS.iter().map(|(a, b)| format!("{a}{b}")).find(|start| {
        line.match_indices(start.as_str()).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            !before.is_some_and(|before| before.is_alphanumeric() || "_.-}*".contains(before))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<usize> {
        check(path, text).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn machine_paths_are_found_where_they_start_a_path() {
        let path = ["/ho", "me/someone/x"].concat();
        assert_eq!(messages("a.md", &format!("fine\nsee {path}\n\"{path}\"\n")), [2, 3]);
        assert_eq!(messages("a.md", &format!("target{path}\n$HOME}}{path}\n")), [0usize; 0]);
    }

    #[test]
    fn leftovers_are_named() {
        assert!(check_name("src/.tests.rs.pending-snap").is_some());
        assert!(check_name("src/a.snap.new").is_some());
        assert!(check_name("src/a.snap").is_none());
    }

    #[test]
    fn merge_marks_are_found() {
        assert_eq!(messages("a.rs", &format!("{} HEAD\n", "<".repeat(7))), [1]);
    }
}
