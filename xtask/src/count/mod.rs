//! `cargo xtask count`: figures of the sources, of the working tree and of a revision by one counter. [`tree`] reads
//! the files, [`source`] says which lines are tests, the other modules count. Nothing here has a limit: `tidy` has.

mod imports;
mod prose;
mod source;
mod tree;
mod types;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use clap::Parser;

use self::imports::Reach;
use self::source::{Source, Without};
use self::tree::Tree;
use crate::tidy::comments::{self, Rule};
use crate::workspace;

/// Folders of the libraries' sources.
const LIBRARIES: [&str; 2] = ["rdma-core/src/", "rdma-collective/src/"];
/// Code that is hard to carry on without its reasons, by parts of paths: title, parts of which a path has one.
const HARD: [(&str, &[&str]); 4] = [
    ("execute", &["/execute/", "/execute.rs", "/exec/", "/executor/"]),
    ("communicator", &["/communicator/"]),
    ("wire/shm", &["/wire/shm/"]),
    ("kernels", &["/reduce/kernels/", "/memory/copy/"]),
];
/// Times that a type name may be used before it counts as one with too many meanings.
const SHARED_FROM: usize = 4;

/// Options of `cargo xtask count`.
#[derive(Debug, Parser)]
pub struct Args {
    /// Revision to count as well, beside the working tree.
    revision: Option<String>,
    /// Print the files of each folder too.
    #[arg(long)]
    folders: bool,
}

/// Figures of one tree: titles with values, and lists that are too long for a table.
#[derive(Default)]
struct Figures {
    rows: Vec<(String, String)>,
    lists: Vec<(String, Vec<String>)>,
}

/// The files of the largest import circle of the library in `folder`.
pub fn largest_circle(files: &BTreeMap<String, String>, folder: &str) -> Vec<String> {
    let sources = source::parse(files, &[folder]);
    let circles = imports::circles(&sources, folder, Reach::NamesAndVisibilities);
    circles.into_iter().next().unwrap_or_default()
}

/// Prints a table with a column for each tree, then the lists.
pub fn main(args: &Args) -> Result<()> {
    let root = workspace::root()?;
    let mut trees = vec![tree::working(&root)?];
    if let Some(revision) = &args.revision {
        trees.insert(0, tree::revision(&root, revision)?);
    }
    let figures: Vec<Figures> = trees.iter().map(|tree| count(tree, args.folders)).collect();
    let mut head = format!("{:<70}", "figure");
    for tree in &trees {
        head.push_str(&format!(" {:>16}", tree.title));
    }
    println!("{head}");
    for title in titles(&figures) {
        let mut row = format!("{title:<70}");
        for figure in &figures {
            let value = figure.rows.iter().find(|(other, _)| other == title).map(|(_, value)| value.as_str());
            row.push_str(&format!(" {:>16}", value.unwrap_or("-")));
        }
        println!("{row}");
    }
    for (tree, figure) in trees.iter().zip(&figures) {
        for (title, entries) in &figure.lists {
            println!("\n{}: {title}", tree.title);
            entries.iter().for_each(|entry| println!("  {entry}"));
        }
    }
    Ok(())
}

/// Titles of all rows, in the order of the last tree; those that only another tree has come after them.
fn titles(figures: &[Figures]) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    let rows = figures.iter().rev().flat_map(|figure| &figure.rows);
    rows.map(|(title, _)| title.as_str()).filter(|title| seen.insert(*title)).collect()
}

fn count(tree: &Tree, folders: bool) -> Figures {
    let sources = source::parse(&tree.files, &LIBRARIES);
    let mut figures = Figures::default();
    figures.code(&sources);
    figures.prose(tree, &sources);
    figures.names(&sources);
    figures.circles(&tree.files);
    figures.api(tree);
    figures.files(&sources, folders);
    figures
}

fn is_in(source: &Source, parts: &[&str]) -> bool {
    parts.iter().any(|part| source.path.contains(part))
}

impl Figures {
    fn row(&mut self, title: impl Into<String>, value: impl ToString) {
        self.rows.push((title.into(), value.to_string()));
    }

    fn code(&mut self, sources: &[Source]) {
        let rules = [
            (Without::NamedTests, "code lines, without files named as tests (the bound's counter)"),
            (Without::TestFiles, "  … and files that only tests compile"),
            (Without::TestModules, "  … and inline modules that only tests compile"),
            (Without::TestItems, "  … and every other item that only tests compile"),
        ];
        for (rule, title) in rules {
            self.row(title, sources.iter().map(|source| source.code(rule)).sum::<usize>());
            for folder in LIBRARIES.iter().filter(|_| rule == Without::NamedTests) {
                let own = sources.iter().filter(|source| source.path.starts_with(folder));
                self.row(format!("  {folder}"), own.map(|source| source.code(rule)).sum::<usize>());
            }
        }
    }

    fn prose(&mut self, tree: &Tree, sources: &[Source]) {
        for folder in LIBRARIES {
            let own = sources.iter().filter(|source| source.path.starts_with(folder));
            let prose = prose::sum(own);
            self.row(format!("docs lines per code line, {folder}"), ratio(prose.docs, prose.code));
            self.row(format!("plain comment lines per code line, {folder}"), ratio(prose.plain, prose.code));
        }
        for (title, parts) in HARD {
            let prose = prose::sum(sources.iter().filter(|source| is_in(source, parts)));
            self.row(format!("plain comment lines per code line, {title}"), ratio(prose.plain, prose.code));
            self.row(
                format!("  comment lines / code lines, {title}"),
                format!("{}/{}", prose.plain, prose.code),
            );
        }
        let prose = prose::sum(sources.iter());
        self.row("words of comments", prose.words);
        let per_words = prose.because * 100_000 / prose.words.max(1);
        self.row("\"because\" per 100,000 words of comments", per_words);
        let texts = tree.files.iter().filter(|(path, _)| LIBRARIES.iter().any(|lib| path.starts_with(lib)));
        let found = texts.flat_map(|(path, text)| comments::check(path, text).findings);
        let mut by_rule: BTreeMap<Rule, usize> = BTreeMap::new();
        found.for_each(|(rule, _)| *by_rule.entry(rule).or_default() += 1);
        for rule in Rule::ALL {
            let title = format!("{rule} (src, tests included)");
            self.row(title, by_rule.get(&rule).copied().unwrap_or_default());
        }
    }

    fn names(&mut self, sources: &[Source]) {
        let plain = types::names(sources.iter(), false);
        self.row("type names", plain.len());
        let shared = |names: &BTreeMap<String, usize>| {
            let mut shared: Vec<(usize, String)> = names
                .iter()
                .filter(|(_, times)| **times >= SHARED_FROM)
                .map(|(name, times)| (*times, name.clone()))
                .collect();
            shared.sort_by_key(|(times, _)| std::cmp::Reverse(*times));
            shared
        };
        let shared_plain = shared(&plain);
        self.row(format!("type names of {SHARED_FROM} types or more"), shared_plain.len());
        let associated = shared(&types::names(sources.iter(), true));
        self.row("  … associated types counted too", associated.len());
        let list = shared_plain.into_iter().map(|(times, name)| format!("{times} {name}")).collect();
        self.lists.push((format!("type names of {SHARED_FROM} types or more"), list));
    }

    fn circles(&mut self, files: &BTreeMap<String, String>) {
        for folder in LIBRARIES {
            let sources = source::parse(files, &[folder]);
            for (reach, title) in [
                (Reach::NamesAndVisibilities, "import circle"),
                (Reach::Names, "import circle without pub(in …)"),
            ] {
                let circles = imports::circles(&sources, folder, reach);
                let largest = circles.first().map_or(0, |circle| circle.len());
                self.row(format!("files of the largest {title}, {folder}"), largest);
                let sizes: Vec<String> = circles.iter().map(|circle| circle.len().to_string()).collect();
                let mut list = vec![format!("sizes of all {}: {}", circles.len(), sizes.join(" "))];
                list.extend(circles.into_iter().next().unwrap_or_default());
                self.lists.push((format!("largest {title} of {folder}"), list));
            }
        }
    }

    fn api(&mut self, tree: &Tree) {
        for library in ["rdma-core", "rdma-collective"] {
            if let Some(text) = tree.files.get(&format!("{library}/public-api.txt")) {
                self.row(format!("lines of {library}/public-api.txt"), text.lines().count());
            }
        }
    }

    fn files(&mut self, sources: &[Source], list: bool) {
        let mut by_folder: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let mut all = Vec::new();
        for source in sources {
            let folder = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            by_folder.entry(folder).or_default().push(source.lines.len());
            all.push(source.lines.len());
        }
        all.sort_unstable();
        self.row("files (tests included)", all.len());
        self.row("folders", by_folder.len());
        self.row("lines of the median file", all.get(all.len() / 2).copied().unwrap_or_default());
        self.row("lines of the longest file", all.last().copied().unwrap_or_default());
        let most = by_folder.iter().max_by_key(|(_, files)| files.len());
        if let Some((folder, files)) = most {
            self.row("most files in a folder", files.len());
            self.lists.push(("folder with the most files".to_owned(), vec![(*folder).to_owned()]));
        }
        if list {
            let lines = by_folder.iter_mut().map(|(folder, files)| {
                files.sort_unstable();
                let (median, max) = (files[files.len() / 2], files[files.len() - 1]);
                format!("{folder}: {} files, median {median} lines, longest {max}", files.len())
            });
            self.lists.push(("files of each folder".to_owned(), lines.collect()));
        }
    }
}

/// `part` of `whole` with three digits, because the bounds on these ratios have two.
fn ratio(part: usize, whole: usize) -> String {
    format!("{:.3}", part as f64 / whole.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_title_stand_side_by_side() {
        let rows = |titles: &[&str]| Figures {
            rows: titles.iter().map(|title| ((*title).to_owned(), String::new())).collect(),
            lists: Vec::new(),
        };
        assert_eq!(titles(&[rows(&["a", "old", "b"]), rows(&["a", "b", "new"])]), ["a", "b", "new", "old"]);
    }

    #[test]
    fn the_bounds_counter_counts_both_libraries() {
        let file = |path: &str| (path.to_owned(), "//! Header.\nfn f() {}\n".to_owned());
        let files = [file("rdma-core/src/lib.rs"), file("rdma-collective/src/lib.rs"), file("x/src/lib.rs")];
        let figures = count(&Tree { title: String::new(), files: files.into() }, true);
        assert_eq!(figures.rows[0].1, "2");
    }
}
