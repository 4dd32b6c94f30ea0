//! Modules of a crate, and the file that defines what a path names. A path through a re-export leads to the file of
//! the definition, not to that of the re-export.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Item, UseTree};

use crate::count::source::{self, Source};

/// Longest chain of re-exports that is followed. Chains in sources that compile are short; a circle of glob imports
/// would otherwise never end.
const REEXPORTS_MAX: usize = 12;

/// Number of a module in [`Modules`].
type Id = usize;

/// Module of a crate, in a file of its own or inline.
#[derive(Default)]
struct Module {
    /// Index of its file among the sources.
    file: usize,
    parent: Option<Id>,
    children: BTreeMap<String, Id>,
    items: BTreeSet<String>,
    /// Names that the module imports, each with its path.
    imports: BTreeMap<String, Vec<String>>,
    /// Paths whose names it imports all.
    globs: Vec<Vec<String>>,
}

/// Meaning of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// An item that this file defines.
    Item(usize),
    /// A module whose own items are in this file.
    Module(Id),
}

/// All modules of one crate that a plain build compiles.
pub struct Modules {
    modules: Vec<Module>,
    /// Module of each source that is no test.
    by_file: BTreeMap<usize, Id>,
}

impl Modules {
    /// Reads the modules of the crate whose `lib.rs` lies in `folder`.
    pub fn new(sources: &[Source], folder: &str) -> Modules {
        let by_path: BTreeMap<&str, usize> =
            sources.iter().enumerate().map(|(index, source)| (source.path.as_str(), index)).collect();
        let mut modules = Modules { modules: Vec::new(), by_file: BTreeMap::new() };
        if let Some(root) = by_path.get(format!("{folder}lib.rs").as_str()) {
            modules.add_file(sources, &by_path, *root, None);
        }
        modules
    }

    /// Module that `file` is, unless it is a test.
    pub fn of_file(&self, file: usize) -> Option<Id> {
        self.by_file.get(&file).copied()
    }

    /// Inline module `name` of `module`.
    pub fn child(&self, module: Id, name: &str) -> Option<Id> {
        self.modules[module].children.get(name).copied()
    }

    /// File that holds `module`.
    pub fn file(&self, module: Id) -> usize {
        self.modules[module].file
    }

    fn add_file(
        &mut self,
        sources: &[Source],
        by_path: &BTreeMap<&str, usize>,
        file: usize,
        parent: Option<Id>,
    ) -> Id {
        let id = self.modules.len();
        self.modules.push(Module { file, parent, ..Module::default() });
        self.by_file.insert(file, id);
        let folder = source::children_folder(&sources[file].path);
        self.add_items(sources, by_path, id, &folder, &sources[file].syntax.items);
        id
    }

    fn add_items(
        &mut self,
        sources: &[Source],
        by_path: &BTreeMap<&str, usize>,
        id: Id,
        folder: &str,
        items: &[Item],
    ) {
        for item in items {
            match item {
                Item::Mod(module) if source::is_only_tests(&module.attrs) => {}
                Item::Mod(module) => {
                    let name = module.ident.to_string();
                    let below = format!("{folder}/{name}");
                    let child = if let Some((_, items)) = &module.content {
                        let child = self.modules.len();
                        let file = self.modules[id].file;
                        self.modules.push(Module { file, parent: Some(id), ..Module::default() });
                        self.add_items(sources, by_path, child, &below, items);
                        Some(child)
                    } else {
                        let paths = [format!("{below}.rs"), format!("{below}/mod.rs")];
                        let file = paths.iter().find_map(|path| by_path.get(path.as_str()));
                        file.map(|file| self.add_file(sources, by_path, *file, Some(id)))
                    };
                    self.modules[id].children.extend(child.map(|child| (name, child)));
                }
                Item::Use(import) if !source::is_only_tests(&import.attrs) => {
                    for (name, path) in flatten(&import.tree) {
                        match name {
                            Some(name) => {
                                self.modules[id].imports.insert(name, path);
                            }
                            None => self.modules[id].globs.push(path),
                        }
                    }
                }
                item => self.modules[id].items.extend(name_of(item)),
            }
        }
    }

    /// Meaning of `path` as `module` writes it; `None` for what other crates define.
    pub fn resolve(&self, module: Id, path: &[String]) -> Option<Meaning> {
        self.resolve_within(module, path, REEXPORTS_MAX)
    }

    fn resolve_within(&self, module: Id, path: &[String], left: usize) -> Option<Meaning> {
        let (mut at, mut rest) = (module, path);
        let mut is_anchored = false;
        while let Some((first, after)) = rest.split_first() {
            at = match first.as_str() {
                "crate" => 0,
                "self" => at,
                "super" => self.modules[at].parent?,
                _ => break,
            };
            is_anchored = true;
            rest = after;
        }
        let Some((first, after)) = rest.split_first() else { return Some(Meaning::Module(at)) };
        match self.name(at, first, left.checked_sub(1)?) {
            Some(Meaning::Module(next)) if !after.is_empty() => {
                self.resolve_below(next, after, left.checked_sub(1)?)
            }
            Some(meaning) => Some(meaning),
            // Macros make some items: such a name belongs to the module that was named.
            None => is_anchored.then_some(Meaning::Item(self.modules[at].file)),
        }
    }

    fn resolve_below(&self, module: Id, rest: &[String], left: usize) -> Option<Meaning> {
        let anchored: Vec<String> = ["self".to_owned()].iter().chain(rest).cloned().collect();
        self.resolve_within(module, &anchored, left)
    }

    /// Meaning of one name in the scope of `module`.
    fn name(&self, module: Id, name: &str, left: usize) -> Option<Meaning> {
        let scope = &self.modules[module];
        if let Some(child) = scope.children.get(name) {
            return Some(Meaning::Module(*child));
        }
        if scope.items.contains(name) {
            return Some(Meaning::Item(scope.file));
        }
        if let Some(path) = scope.imports.get(name) {
            // `use name::…` of another crate has the name of its first segment: looking it up here would not end.
            return if path.first().is_some_and(|first| first == name) {
                None
            } else {
                self.resolve_within(module, path, left.checked_sub(1)?)
            };
        }
        let left = left.checked_sub(1)?;
        scope.globs.iter().find_map(|glob| match self.resolve_within(module, glob, left)? {
            Meaning::Module(of) if of != module => self.name(of, name, left),
            _ => None,
        })
    }
}

/// Names that a `use` brings in, each with its path; `None` for a glob.
pub fn flatten(tree: &UseTree) -> Vec<(Option<String>, Vec<String>)> {
    match tree {
        UseTree::Path(path) => {
            let first = path.ident.to_string();
            let inner = flatten(&path.tree).into_iter();
            inner
                .map(|(name, mut rest)| match rest.first().is_some_and(|next| next == "self") {
                    // `a::{self}` imports `a`.
                    true => (name.filter(|name| name != "self").or(Some(first.clone())), vec![first.clone()]),
                    false => {
                        rest.insert(0, first.clone());
                        (name, rest)
                    }
                })
                .collect()
        }
        UseTree::Name(name) => vec![(Some(name.ident.to_string()), vec![name.ident.to_string()])],
        UseTree::Rename(rename) => vec![(Some(rename.rename.to_string()), vec![rename.ident.to_string()])],
        UseTree::Glob(_) => vec![(None, Vec::new())],
        UseTree::Group(group) => group.items.iter().flat_map(flatten).collect(),
    }
}

fn name_of(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}
