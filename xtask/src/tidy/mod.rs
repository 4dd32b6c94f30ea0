//! `cargo xtask tidy`: the part of the house style that can be measured. [`rust`] checks the code of `.rs` files,
//! [`comments`] their comments, [`layers`] the paths they name, [`text`] the lines of every file, [`security`] the
//! tables of `SECURITY.md` and `docs/trust.md`. This file finds the files, applies the limits on all of them together,
//! and reports.

pub mod comments;
mod layers;
mod rust;
mod security;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;

use anyhow::{Context, Result, bail};
use clap::Parser;

use crate::{count, git, workspace};

/// Folders of the libraries' sources, whose file sizes have a bound on their median.
const LIBRARIES: [&str; 2] = ["rdma-core/src/", "rdma-collective/src/"];
/// Bound on the median lines of a library's file. The limit of a single file leaves room for a few long ones; this
/// bound makes sure that they stay few.
const MEDIAN_BELOW: usize = 150;

/// Bounds on the files of the largest import circle of a library: a newcomer has to read all of a circle at once.
const CIRCLES: [(&str, usize); 2] = [("rdma-core/src/", 14), ("rdma-collective/src/", 8)];

/// Options of `cargo xtask tidy`.
#[derive(Debug, Default, Parser)]
pub struct Args {
    /// Files or folders to check [default: the whole workspace].
    paths: Vec<String>,
}

/// Line that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Path from the workspace's root.
    pub path: String,
    /// Number of the line, from 1; 0 for the whole file.
    pub line: usize,
    /// Rule and mend.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(out, "{}: {}", self.path, self.message),
            line => write!(out, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Sums over all files.
#[derive(Debug, Default)]
struct Report {
    findings: Vec<Finding>,
    /// Lines of each `.rs` file of the libraries.
    lengths: Vec<usize>,
    rust_files: usize,
    comments: usize,
    safety: usize,
    /// Findings in comments by rule.
    by_rule: BTreeMap<comments::Rule, usize>,
    /// Names of all tests.
    tests: BTreeSet<String>,
    /// The libraries' files, by path.
    libraries: BTreeMap<String, String>,
}

/// Checks every file that git tracks or would track; fails when one breaks a rule.
pub fn main(args: &Args) -> Result<()> {
    let root = workspace::root()?;
    let is_chosen =
        |path: &str| args.paths.is_empty() || args.paths.iter().any(|chosen| lies_in(path, chosen));
    let paths: Vec<String> = git::files(&root)?.into_iter().filter(|path| is_chosen(path)).collect();
    let mut report = Report::default();
    for path in &paths {
        // A link's target has a path of its own, and a file may be deleted but not yet committed.
        if !fs::symlink_metadata(root.join(path)).is_ok_and(|data| data.is_file()) {
            continue;
        }
        let bytes = fs::read(root.join(path)).with_context(|| format!("cannot read {path}"))?;
        report.findings.extend(text::check_name(path));
        let Ok(text) = String::from_utf8(bytes) else { continue };
        report.findings.extend(text::check(path, &text));
        if path.ends_with(".rs") {
            report.rust_file(path, &text);
        }
    }
    report.check_median();
    // The names of the tests, and all imports, are known only when all files were read.
    if args.paths.is_empty() {
        report.check_circles();
        for path in security::PATHS {
            let document =
                fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))?;
            report.findings.extend(security::check(path, &document, &report.tests));
        }
    }
    report.print(paths.len());
    match report.findings.len() {
        0 => {
            println!("tidy: {} files keep the house style", paths.len());
            Ok(())
        }
        count => bail!("tidy: {count} places break the house style"),
    }
}

impl Report {
    fn rust_file(&mut self, path: &str, text: &str) {
        self.rust_files += 1;
        security::tests(text, &mut self.tests);
        if LIBRARIES.iter().any(|folder| path.starts_with(folder)) {
            self.lengths.push(text.lines().count());
            self.libraries.insert(path.to_owned(), text.to_owned());
        }
        self.findings.extend(rust::check(path, text));
        self.findings.extend(layers::check(path, text));
        let checked = comments::check(path, text);
        self.comments += checked.comments;
        self.safety += checked.safety;
        for (rule, finding) in checked.findings {
            *self.by_rule.entry(rule).or_default() += 1;
            self.findings.push(finding);
        }
    }

    fn check_median(&mut self) {
        let Some(median) = median(&mut self.lengths) else { return };
        if median >= MEDIAN_BELOW {
            let message = format!("the median file has {median} lines, not below {MEDIAN_BELOW}: split some");
            self.findings.push(Finding { path: LIBRARIES.join(", "), line: 0, message });
        }
    }

    fn check_circles(&mut self) {
        for (folder, most) in CIRCLES {
            let circle = count::largest_circle(&self.libraries, folder);
            if circle.len() > most {
                let (files, names) = (circle.len(), circle.join(", "));
                let message = format!(
                    "{files} files import one another, {most} at most: move what they share out of {names}"
                );
                self.findings.push(Finding { path: folder.to_owned(), line: 0, message });
            }
        }
    }

    fn print(&mut self, files: usize) {
        for finding in &self.findings {
            println!("{finding}");
        }
        println!("\nfiles                     {files:>6} ({} of Rust)", self.rust_files);
        if let Some(median) = median(&mut self.lengths) {
            let longest = self.lengths.last().copied().unwrap_or_default();
            println!(
                "lines of a library's file {median:>6} median (below {MEDIAN_BELOW}), {longest} longest, {} files",
                self.lengths.len()
            );
        }
        println!("comments                  {:>6}", self.comments);
        println!("SAFETY comments           {:>6}", self.safety);
        for rule in comments::Rule::ALL {
            let count = self.by_rule.get(&rule).copied().unwrap_or_default();
            println!("{:<25} {count:>6} findings", rule.to_string());
        }
        println!();
    }
}

/// Sorts `values` and returns the middle one; of an even number of them, the upper of the two in the middle.
fn median(values: &mut [usize]) -> Option<usize> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// Whether `path` is `chosen` or lies in that folder.
fn lies_in(path: &str, chosen: &str) -> bool {
    let chosen = chosen.trim_start_matches("./").trim_end_matches('/');
    path.strip_prefix(chosen).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: &str = "//! Header.\n\n/// It is bare.\nconst A: u8 = 0;\n";

    #[test]
    fn a_finding_is_counted_and_fails_in_every_folder() {
        let mut report = Report::default();
        for path in ["benches/src/a.rs", "examples/src/a.rs", "rdma-core/src/a.rs"] {
            report.rust_file(path, BARE);
        }
        assert_eq!(report.findings.len(), 3);
        assert_eq!(report.by_rule[&comments::Rule::Beginning], 3);
    }

    #[test]
    fn the_libraries_median_file_stays_below_its_bound() {
        let file = |lines: usize| format!("//! Header.\n{}", "const A: u8 = 0;\n".repeat(lines - 1));
        let mut report = Report::default();
        for lines in [MEDIAN_BELOW - 1, MEDIAN_BELOW - 1, MEDIAN_BELOW] {
            report.rust_file("rdma-core/src/a.rs", &file(lines));
        }
        report.rust_file("elsewhere/src/a.rs", &file(MEDIAN_BELOW));
        report.check_median();
        assert_eq!(report.findings, []);
        report.rust_file("rdma-collective/src/a.rs", &file(MEDIAN_BELOW));
        report.check_median();
        assert_eq!(report.findings.len(), 1);
    }

    #[test]
    fn a_large_import_circle_is_found() {
        let mut report = Report::default();
        let folder = CIRCLES[1].0;
        let files = CIRCLES[1].1 + 1;
        let modules: String = (0..files).map(|file| format!("mod m{file};\n")).collect();
        report.rust_file(&format!("{folder}lib.rs"), &format!("//! Header.\n\n{modules}"));
        for file in 0..files {
            let next = (file + 1) % files;
            let text =
                format!("//! Header.\n\nuse crate::m{next}::T{next};\n\npub struct T{file}(T{next});\n");
            report.rust_file(&format!("{folder}m{file}.rs"), &text);
        }
        report.findings.clear();
        report.check_circles();
        assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    }

    #[test]
    fn a_chosen_folder_has_the_files_below_it_alone() {
        assert!(
            lies_in("a/b/c.rs", "a/b") && lies_in("a/b/c.rs", "./a/b/") && lies_in("a/b/c.rs", "a/b/c.rs")
        );
        assert!(!lies_in("a/bc/d.rs", "a/b"));
    }
}
