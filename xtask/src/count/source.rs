//! Source file with the shares of it that only tests compile. Three rules say what a test is, from the name of a
//! file to the `cfg` of an item; the figures say which rule they follow.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use proc_macro2::Span;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Meta, Token};

use crate::lines::{self, Line};

/// Parsed source file.
pub struct Source {
    /// Path from the workspace's root.
    pub path: String,
    /// Lines of the file.
    pub lines: Vec<Line>,
    /// Items of the file.
    pub syntax: syn::File,
    /// Whether the file is named as tests: `tests.rs`, or anything in a `tests` folder.
    pub is_named_tests: bool,
    /// Whether only tests or fuzz targets compile the file, whatever its name.
    pub is_only_tests: bool,
    /// Line numbers of the modules in this file that only tests compile.
    test_modules: Vec<RangeInclusive<usize>>,
    /// Line numbers of every item that only tests compile, modules included.
    test_items: Vec<RangeInclusive<usize>>,
}

/// Rule that says which lines are tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Without {
    /// Files named as tests. Simulators and fuzz entries with other names count as source, inline modules too.
    NamedTests,
    /// Files that only tests compile, by whatever name.
    TestFiles,
    /// The files of the rule above and the inline modules that only tests compile.
    TestModules,
    /// Everything that only tests compile, single functions and imports included.
    TestItems,
}

impl Source {
    /// Lines of the file that are not tests by the rule `without`.
    pub fn lines(&self, without: Without) -> impl Iterator<Item = &Line> {
        let ranges: &[_] = match without {
            Without::NamedTests | Without::TestFiles => &[],
            Without::TestModules => &self.test_modules,
            Without::TestItems => &self.test_items,
        };
        let is_out = match without {
            Without::NamedTests => self.is_named_tests,
            _ => self.is_only_tests || self.is_named_tests,
        };
        let is_in = move |number| !is_out && !ranges.iter().any(|range| range.contains(&number));
        (1..).zip(&self.lines).filter(move |(number, _)| is_in(*number)).map(|(_, line)| line)
    }

    /// Lines of code by the rule `without`.
    pub fn code(&self, without: Without) -> usize {
        self.lines(without).filter(|line| line.has_code).count()
    }
}

/// Parses the `.rs` files below `folders`. A file that does not parse has lines but no items.
pub fn parse(files: &BTreeMap<String, String>, folders: &[&str]) -> Vec<Source> {
    let wanted = files
        .iter()
        .filter(|(path, _)| path.ends_with(".rs") && folders.iter().any(|folder| path.starts_with(folder)));
    let mut sources: Vec<Source> = wanted.map(|(path, text)| source(path, text)).collect();
    let test_files: BTreeSet<String> = sources.iter().flat_map(test_children).collect();
    for source in &mut sources {
        source.is_only_tests = test_files.iter().any(|module| {
            let below = source.path.strip_prefix(module.as_str());
            below.is_some_and(|below| below == ".rs" || below.starts_with('/'))
        });
    }
    sources
}

fn source(path: &str, text: &str) -> Source {
    let syntax = syn::parse_file(text).unwrap_or(syn::File {
        shebang: None,
        frontmatter: None,
        attrs: Vec::new(),
        items: Vec::new(),
    });
    let mut tests = Tests::default();
    tests.visit_file(&syntax);
    Source {
        path: path.to_owned(),
        lines: lines::lines(text),
        is_named_tests: path.ends_with("/tests.rs") || path.contains("/tests/"),
        is_only_tests: false,
        test_modules: tests.modules,
        test_items: tests.items,
        syntax,
    }
}

/// Folder in which the files of the modules that `path` declares lie.
pub fn children_folder(path: &str) -> String {
    let stem = path.trim_end_matches(".rs");
    let own = ["/mod", "/lib", "/main"].iter().find_map(|name| stem.strip_suffix(name));
    own.unwrap_or(stem).to_owned()
}

/// Paths, without `.rs`, of the modules in files of their own that only tests compile.
fn test_children(source: &Source) -> Vec<String> {
    let folder = children_folder(&source.path);
    let modules = source.syntax.items.iter().filter_map(|item| match item {
        Item::Mod(module) if module.content.is_none() && is_only_tests(&module.attrs) => Some(&module.ident),
        _ => None,
    });
    modules.map(|name| format!("{folder}/{name}")).collect()
}

/// Whether attributes keep an item out of every build but those of tests, loom and fuzz targets.
pub fn is_only_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        attribute.parse_args::<Meta>().is_ok_and(|predicate| holds_in_builds(&predicate) == Some(false))
    })
}

/// Value of a `cfg` predicate in a build that is no test; `None` where it depends on the target.
fn holds_in_builds(predicate: &Meta) -> Option<bool> {
    let Meta::List(list) = predicate else {
        let is_for_tests = ["test", "loom", "fuzzing"].iter().any(|name| predicate.path().is_ident(name));
        return if is_for_tests { Some(false) } else { None };
    };
    let inner = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
    let values: Vec<Option<bool>> = inner.iter().map(holds_in_builds).collect();
    let decided = |value| values.contains(&Some(value)).then_some(value);
    let all = |value| values.iter().all(|one| *one == Some(value)).then_some(value);
    if list.path.is_ident("not") {
        values.first().copied().flatten().map(|value| !value)
    } else if list.path.is_ident("all") {
        decided(false).or(all(true))
    } else if list.path.is_ident("any") {
        decided(true).or(all(false))
    } else {
        None
    }
}

/// Visitor that notes the lines of what only tests compile.
#[derive(Default)]
struct Tests {
    modules: Vec<RangeInclusive<usize>>,
    items: Vec<RangeInclusive<usize>>,
}

impl Tests {
    fn note(&mut self, attributes: &[Attribute], span: Span) -> bool {
        let is_test = is_only_tests(attributes);
        if is_test {
            let first = attributes.iter().map(|attribute| attribute.span().start().line).min();
            self.items.push(first.unwrap_or(span.start().line)..=span.end().line);
        }
        is_test
    }
}

impl<'ast> Visit<'ast> for Tests {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Const(item) => &item.attrs,
            Item::Enum(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Macro(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Static(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            Item::Trait(item) => &item.attrs,
            Item::Type(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !self.note(attributes, item.span()) {
            visit::visit_item(self, item);
        } else if matches!(item, Item::Mod(module) if module.content.is_some()) {
            self.modules.extend(self.items.last().cloned());
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.note(&item.attrs, item.span());
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        self.note(&field.attrs, field.span());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(files: &[(&str, &str)]) -> Vec<Source> {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        parse(&files, &["a/src/"])
    }

    fn is_test(cfg: &str) -> bool {
        let item: syn::ItemMod = syn::parse_str(&format!("#[cfg({cfg})] mod m;")).unwrap();
        is_only_tests(&item.attrs)
    }

    #[test]
    fn a_predicate_that_no_plain_build_meets_is_a_tests() {
        for cfg in ["test", "any(fuzzing, test)", "all(test, not(loom))", "all(unix, test)"] {
            assert!(is_test(cfg), "{cfg}");
        }
        for cfg in ["unix", "not(test)", "not(all(test, loom))", "any(test, not(unix))", "feature = \"test\""]
        {
            assert!(!is_test(cfg), "{cfg}");
        }
    }

    #[test]
    fn each_rule_leaves_out_more_than_the_one_before() {
        let main = "#[cfg(test)]\nmod sim;\nfn f() {}\n#[cfg(test)]\nfn g() {}\n#[cfg(test)]\nmod m {\n}\n";
        let sources = parsed(&[
            ("a/src/lib.rs", main),
            ("a/src/sim.rs", "fn s() {}\n"),
            ("a/src/sim/cell.rs", "fn c() {}\n"),
            ("a/src/simple.rs", "fn k() {}\n"),
            ("a/src/tests.rs", "fn t() {}\n"),
        ]);
        let code = |without| sources.iter().map(|source| source.code(without)).sum::<usize>();
        let rules = [Without::NamedTests, Without::TestFiles, Without::TestModules, Without::TestItems];
        assert_eq!(rules.map(code), [11, 9, 6, 2]);
    }

    #[test]
    fn modules_lie_beside_a_mod_file_and_below_any_other() {
        assert_eq!(children_folder("a/src/lib.rs"), "a/src");
        assert_eq!(children_folder("a/src/b/mod.rs"), "a/src/b");
        assert_eq!(children_folder("a/src/b.rs"), "a/src/b");
    }
}
