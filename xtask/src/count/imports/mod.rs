//! Import circles: files that name one another in a round, so that none can be read, moved or tested without the
//! others. An arrow leads from a file to the file that defines a name which it imports or names by a path. Two things
//! are no arrow: `mod x;`, because a parent must name its children, and a re-export, because it says where a name is
//! published and not that the parent needs it.

mod circle;
mod modules;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use syn::visit::{self, Visit};

use self::modules::{Meaning, Modules, flatten};
use super::source::{self, Source};

/// Rule that says which names are arrows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Imports and paths.
    Names,
    /// Also `pub(in a::b)`, which leads to the file of module `b`: neither can move without the other.
    NamesAndVisibilities,
}

/// Paths of the files in each circle of the crate whose `lib.rs` lies in `folder`, the largest circle first.
pub fn circles(sources: &[Source], folder: &str, reach: Reach) -> Vec<Vec<String>> {
    let modules = Modules::new(sources, folder);
    let mut arrows = vec![BTreeSet::new(); sources.len()];
    for (file, source) in sources.iter().enumerate() {
        let Some(module) = modules.of_file(file) else { continue };
        let mut names = Names { modules: &modules, module, reach, files: BTreeSet::new() };
        names.visit_file(&source.syntax);
        names.files.remove(&file);
        arrows[file] = names.files;
    }
    let mut circles = circle::circles(&arrows);
    circles.sort_by_key(|circle| Reverse(circle.len()));
    let paths = |circle: Vec<usize>| circle.into_iter().map(|file| sources[file].path.clone()).collect();
    circles.into_iter().map(paths).collect()
}

/// Visitor that collects the files of the names in one file.
struct Names<'a> {
    modules: &'a Modules,
    /// Module around the visited item, because paths are relative to it.
    module: usize,
    reach: Reach,
    files: BTreeSet<usize>,
}

impl Names<'_> {
    fn note(&mut self, path: &[String]) {
        if let Some(Meaning::Item(file)) = self.modules.resolve(self.module, path) {
            self.files.insert(file);
        }
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let child = self.modules.child(self.module, &item.ident.to_string());
        if let (Some(child), Some(_)) = (child, &item.content) {
            let around = std::mem::replace(&mut self.module, child);
            visit::visit_item_mod(self, item);
            self.module = around;
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !source::is_only_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !source::is_only_tests(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !source::is_only_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_reexport = !matches!(item.vis, syn::Visibility::Inherited);
        if !is_reexport && !source::is_only_tests(&item.attrs) {
            for (_, path) in flatten(&item.tree) {
                self.note(&path);
            }
        }
    }

    /// `pub(in a::b)` names a module and needs nothing of it.
    fn visit_visibility(&mut self, visibility: &'ast syn::Visibility) {
        let syn::Visibility::Restricted(restricted) = visibility else { return };
        if self.reach == Reach::NamesAndVisibilities && restricted.path.segments.len() > 1 {
            let meaning = self.modules.resolve(self.module, &words(&restricted.path));
            if let Some(Meaning::Module(module)) = meaning {
                self.files.insert(self.modules.file(module));
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        // A single segment is a name of this module or an imported one, whose `use` is an arrow already.
        if path.segments.len() > 1 {
            self.note(&words(path));
        }
        visit::visit_path(self, path);
    }
}

fn words(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        found_with(files, Reach::Names)
    }

    fn found_with(files: &[(&str, &str)], reach: Reach) -> Vec<Vec<String>> {
        let files = files.iter().map(|(path, text)| (format!("a/src/{path}"), (*text).to_owned())).collect();
        circles(&source::parse(&files, &["a/src/"]), "a/src/", reach)
    }

    #[test]
    fn files_that_import_each_other_are_a_circle() {
        let files = [
            ("lib.rs", "mod b; mod c; mod d;"),
            ("b.rs", "use crate::c::C; pub struct B;"),
            ("c/mod.rs", "pub struct C; fn f(_: super::b::B, _: crate::d::D) {}"),
            ("d.rs", "pub struct D;"),
        ];
        assert_eq!(found(&files), [["a/src/b.rs", "a/src/c/mod.rs"]]);
    }

    #[test]
    fn a_name_leads_through_reexports_to_its_definition() {
        let files = [
            ("lib.rs", "mod b; pub use b::{One, Two};"),
            ("b/mod.rs", "mod one; mod two; pub use one::One; pub use two::*;"),
            ("b/one.rs", "use super::Two; pub struct One;"),
            ("b/two.rs", "use crate::One; pub struct Two;"),
        ];
        assert_eq!(found(&files), [["a/src/b/one.rs", "a/src/b/two.rs"]]);
    }

    #[test]
    fn a_private_import_of_the_parent_is_followed_too() {
        let files = [
            ("lib.rs", "mod b; mod c;"),
            ("b/mod.rs", "use crate::c::C; mod d; fn f(_: C) {}"),
            ("b/d.rs", "use super::C; pub struct D(C);"),
            ("c.rs", "use crate::b::d::D; pub struct C;"),
        ];
        assert_eq!(found(&files), [["a/src/b/d.rs", "a/src/c.rs"]]);
    }

    #[test]
    fn declarations_tests_and_visibilities_are_no_arrows() {
        let files = [
            ("lib.rs", "mod b; mod c; #[cfg(test)] mod tests { use crate::b::B; }"),
            ("b.rs", "pub struct B; pub(in crate::c) struct P; #[cfg(test)] use crate::c::C;"),
            ("c.rs", "use crate::b::B; pub struct C; #[cfg(test)] mod tests;"),
            ("c/tests.rs", "use crate::b::B;"),
        ];
        assert_eq!(found(&files), [[""; 0]; 0]);
    }

    #[test]
    fn a_visibility_is_an_arrow_where_it_is_asked_for() {
        let files = [
            ("lib.rs", "mod b;"),
            ("b/mod.rs", "mod c; use self::c::C;"),
            ("b/c.rs", "mod d; pub struct C(d::D);"),
            ("b/c/d.rs", "pub(in crate::b) struct D;"),
        ];
        assert_eq!(found(&files), [[""; 0]; 0]);
        let circle = ["a/src/b/c.rs", "a/src/b/c/d.rs", "a/src/b/mod.rs"];
        assert_eq!(found_with(&files, Reach::NamesAndVisibilities), [circle]);
    }

    #[test]
    fn globs_that_import_each_other_end() {
        let files = [
            ("lib.rs", "mod b; mod c;"),
            ("b.rs", "pub use crate::c::*; use self::nothing::X;"),
            ("c.rs", "pub use crate::b::*; fn f() { crate::b::g(); }"),
        ];
        assert_eq!(found(&files), [[""; 0]; 0]);
    }
}
