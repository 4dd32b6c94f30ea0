//! `cargo xtask walk`: the functions that one steady all-reduce of a slice enters, counted by callgrind. A reader who
//! follows the call has to know as many. Both trees are built without optimisation, so that no function is inlined,
//! and run the same program against their public API.

mod functions;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Parser;

use self::functions::Function;
use crate::callgrind::{self, Counted, Lines, Program};
use crate::checkout::{self, Checkout};
use crate::workspace;

/// Source of the program.
const PROGRAM: &str = include_str!("program.rs.in");
/// Mark in [`PROGRAM`] in whose stead imports are put.
const IMPORTS_MARK: &str = "// IMPORTS";
/// Imports of the program by the age of a tree, youngest first: the first that compiles is taken.
const IMPORTS: [&str; 2] = [
    "use rdma_collective::bootstrap::{JobToken, Join, StoreClient, StoreOptions, StoreServer};\n\
     use rdma_collective::collective::{Communicator, CommunicatorOptions, ReduceOp};\n\
     use rdma_collective::engine::{Engine, EngineOptions};",
    "use rdma_collective::collective::ReduceOp;\n\
     use rdma_collective::comm::bootstrap::{JobToken, Join, StoreClient, StoreOptions, StoreServer};\n\
     use rdma_collective::comm::{Communicator, CommunicatorOptions, Engine, EngineOptions};",
];
/// Settings of the profile. Dependencies are built without optimisation too, because their generic functions are
/// compiled with the libraries.
const SETTINGS: &str = "opt-level = 0\nincremental = false\nlto = \"off\"";
/// Calls before those that are watched: the first ones choose a plan and map memory.
const WARM_UP: usize = 8;
/// Calls that are watched one by one. Functions that only some of them enter depend on the time and do not count.
const CALLS: usize = 5;
/// Folders of the libraries' sources.
const LIBRARIES: [&str; 2] = ["rdma-core/src/", "rdma-collective/src/"];

/// Options of `cargo xtask walk`.
#[derive(Debug, Parser)]
pub struct Args {
    /// Revision to walk as well, beside the working tree.
    revision: Option<String>,
    /// Print the functions of the working tree by file, or those of the revision with `--list=revision`.
    #[arg(long, value_enum, num_args = 0..=1, default_missing_value = "working")]
    list: Option<Listed>,
    /// Bytes of the slice.
    #[arg(long, default_value_t = 1 << 20)]
    bytes: usize,
}

/// Tree whose functions are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Listed {
    Working,
    Revision,
    Both,
}

/// Functions of the libraries that a call enters, by path of the file.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Walk {
    functions: BTreeMap<String, BTreeSet<Function>>,
    /// Lines that ran and belong to no function: those of derived traits.
    elsewhere: BTreeMap<String, BTreeSet<usize>>,
}

/// Walks both trees, one after the other.
pub fn main(args: &Args) -> Result<()> {
    let root = workspace::root()?;
    let folder = workspace::target()?.join("walk");
    let mut trees = Vec::new();
    if let Some(revision) = &args.revision {
        trees.push((Listed::Revision, checkout::revision(&root, revision, &folder)?));
    }
    trees.push((Listed::Working, checkout::working(&root, &folder)?));
    let mut table = format!("{:<14} {:>9} {:>7} {:>7}\n", "tree", "functions", "files", "folders");
    for (which, tree) in &trees {
        let program = build(tree)?;
        let walk = watch(tree, &program, args.bytes)?;
        if args.list.is_some_and(|listed| listed == *which || listed == Listed::Both) {
            println!("{}", tree.title);
            walk.print();
        }
        let (functions, files, folders) = walk.size();
        table.push_str(&format!("{:<14} {functions:>9} {files:>7} {folders:>7}\n", tree.title));
    }
    print!("{table}");
    Ok(())
}

/// Builds the program against `tree`.
fn build(tree: &Checkout) -> Result<PathBuf> {
    let sources = IMPORTS.map(|imports| PROGRAM.replace(IMPORTS_MARK, imports));
    let libraries = &["rdma-core", "rdma-collective"];
    Program { name: "walk", libraries, features: "", sources: &sources, profile: "dev", settings: SETTINGS }
        .build(tree)
}

/// Runs the program under callgrind, and returns what every watched call enters.
fn watch(tree: &Checkout, program: &Path, bytes: usize) -> Result<Walk> {
    let arguments = [bytes, WARM_UP, CALLS].map(|number| number.to_string());
    let counted = Counted { inside: Some("steady_call"), each: "steady_call", calls: CALLS };
    let mut sources = BTreeMap::new();
    let mut walks = Vec::new();
    for dump in callgrind::run(tree, program, &arguments, counted)? {
        walks.push(Walk::new(&tree.root, &callgrind::lines(&dump), &mut sources)?);
    }
    let walk = walks.into_iter().reduce(Walk::common).unwrap_or_default();
    if walk.functions.is_empty() {
        bail!("callgrind saw no function of the libraries in {}", tree.title);
    }
    Ok(walk)
}

impl Walk {
    /// Functions around `lines`, as far as the libraries of the tree at `root` have them.
    fn new(root: &Path, lines: &Lines, sources: &mut BTreeMap<String, Vec<Function>>) -> Result<Walk> {
        let mut walk = Walk::default();
        for (file, numbers) in lines {
            let Some(path) = path_in_libraries(file) else { continue };
            if !sources.contains_key(path) {
                let text = fs::read_to_string(root.join(path)).with_context(|| format!("no {path}"))?;
                sources.insert(path.to_owned(), functions::functions(&text));
            }
            // Line 0 stands for code without a line, such as that around a call's arguments.
            for number in numbers.iter().filter(|number| **number > 0) {
                match functions::around(&sources[path], *number) {
                    Some(function) => {
                        walk.functions.entry(path.to_owned()).or_default().insert(function.clone());
                    }
                    None => {
                        walk.elsewhere.entry(path.to_owned()).or_default().insert(*number);
                    }
                }
            }
        }
        Ok(walk)
    }

    /// Walk that two calls have in common.
    fn common(mut self, other: Walk) -> Walk {
        self.functions.retain(|path, functions| {
            functions.retain(|function| other.functions.get(path).is_some_and(|set| set.contains(function)));
            !functions.is_empty()
        });
        self.elsewhere.retain(|path, lines| {
            lines.retain(|line| other.elsewhere.get(path).is_some_and(|set| set.contains(line)));
            !lines.is_empty()
        });
        self
    }

    /// Numbers of functions, files and folders.
    fn size(&self) -> (usize, usize, usize) {
        let folders: BTreeSet<_> = self
            .functions
            .keys()
            .map(|path| path.rsplit_once('/').map_or("", |(folder, _)| folder))
            .collect();
        (self.functions.values().map(BTreeSet::len).sum(), self.functions.len(), folders.len())
    }

    fn print(&self) {
        for (path, functions) in &self.functions {
            println!("{path}: {}", functions.len());
            for function in functions {
                println!("    {:>4} {}", function.first, function.name);
            }
        }
        for (path, lines) in &self.elsewhere {
            println!("{path}: lines of derived traits, not counted: {lines:?}");
        }
    }
}

/// Path from the workspace's root, if `file` is a source of the libraries.
fn path_in_libraries(file: &str) -> Option<&str> {
    LIBRARIES.iter().find_map(|folder| file.rfind(&format!("/{folder}")).map(|at| &file[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sources_of_the_libraries_count() {
        assert_eq!(
            path_in_libraries("/a/tree/rdma-core/src/verbs/mod.rs"),
            Some("rdma-core/src/verbs/mod.rs")
        );
        assert_eq!(path_in_libraries("/a/registry/half-2.0/src/lib.rs"), None);
    }

    #[test]
    fn calls_have_in_common_what_each_of_them_enters() {
        let walk = |names: &[&str]| {
            let function = |name: &&str| Function { first: 1, last: 2, name: (*name).to_owned() };
            let functions = [("a/b.rs".to_owned(), names.iter().map(function).collect())];
            Walk { functions: functions.into(), ..Walk::default() }
        };
        assert_eq!(walk(&["f", "g"]).common(walk(&["g", "h"])), walk(&["g"]));
        assert_eq!(walk(&["f"]).common(walk(&["g"])), Walk::default());
        let mut two_files = walk(&["f", "g"]);
        two_files.functions.insert("a/c.rs".to_owned(), walk(&["h"]).functions["a/b.rs"].clone());
        assert_eq!(two_files.size(), (3, 2, 1));
    }

    #[test]
    fn the_program_has_a_place_for_its_imports() {
        assert_eq!(PROGRAM.matches(IMPORTS_MARK).count(), 1);
    }
}
