//! Rule of the layers: paths that the files of a folder may not name. ARCHITECTURE has the table with the reasons.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;

/// Names of `verbs` at the crate root, where the layers below `verbs` could reach them too.
const OF_VERBS: [&str; 9] = [
    "crate::verbs",
    "crate::Context",
    "crate::Device",
    "crate::DeviceList",
    "crate::ProtectionDomain",
    "crate::Worker",
    "crate::Batch",
    "crate::QueuePair",
    "crate::gid",
];

/// Folder, paths that its files may not name, and the rule.
const RULES: [(&str, &[&str], &str); 15] = [
    ("rdma-core/src/types/", &["crate::backend", "crate::memory"], "`types` are plain values"),
    ("rdma-core/src/types/", &OF_VERBS, "`types` are plain values"),
    ("rdma-core/src/error/", &OF_VERBS, "`error` knows values alone"),
    ("rdma-core/src/memory/", &["crate::backend"], "`memory` knows no backend"),
    ("rdma-core/src/memory/", &OF_VERBS, "`memory` stands below `verbs`"),
    ("rdma-core/src/backend/", &OF_VERBS, "`backend` stands below `verbs`"),
    (
        "rdma-core/src/verbs/",
        &["crate::backend::ibverbs", "crate::backend::soft"],
        "`verbs` knows no backend by name",
    ),
    ("rdma-core/src/verbs/", &["std::env"], "`verbs` reads no environment variable"),
    ("rdma-collective/src/kv/", &["crate::collective"], "`kv` and `collective` are siblings over `engine`"),
    ("rdma-collective/src/collective/", &["crate::kv"], "`kv` and `collective` are siblings over `engine`"),
    ("rdma-collective/src/bootstrap/", &SERVICES, "`bootstrap` stands below `kv` and `collective`"),
    ("rdma-collective/src/engine/", &SERVICES, "`engine` stands below `kv` and `collective`"),
    ("rdma-collective/src/env/", &SERVICES, "`env` stands below `kv` and `collective`"),
    ("rdma-collective/src/link/", &SERVICES, "`link` stands below `kv` and `collective`"),
    ("rdma-collective/src/liveness/", &SERVICES, "`liveness` stands below `kv` and `collective`"),
];
/// The two halves of `rdma-collective`, which its lower layers may not name.
const SERVICES: [&str; 2] = ["crate::kv", "crate::collective"];
/// Schedules see neither devices nor links.
const PURE: (&str, &[&str], &str) = (
    "rdma-collective/src/collective/schedule/",
    &["crate::collective::communicator", "crate::engine", "crate::link", "rdma_core"],
    "a schedule is pure data",
);

/// Checks one file. Tests are exempt because they may use the layers above.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    if path.contains("/tests/") || path.ends_with("/tests.rs") {
        return Vec::new();
    }
    let Ok(file) = syn::parse_file(text) else { return Vec::new() };
    let mut names = Names { module: module_of(path), found: Vec::new() };
    names.visit_file(&file);
    let mut findings = Vec::new();
    for (folder, forbidden, rule) in
        RULES.iter().chain([&PURE]).filter(|(folder, ..)| path.starts_with(folder))
    {
        for (line, name) in &names.found {
            let breaks =
                forbidden.iter().any(|prefix| name == prefix || name.starts_with(&format!("{prefix}::")));
            if breaks {
                let message = format!("names `{name}`, but {rule} ({folder})");
                findings.push(Finding { path: path.to_owned(), line: *line, message });
            }
        }
    }
    findings
}

/// Returns the module that the file at `path` is, from the root of its crate. A module by `#[path]` counts as its file
/// lies.
fn module_of(path: &str) -> Vec<String> {
    let within = path.split_once("/src/").map_or(path, |(_, within)| within).trim_end_matches(".rs");
    let mut module: Vec<_> = within.split('/').map(str::to_owned).collect();
    module.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
    module
}

/// Paths that a file names, each with its line.
struct Names {
    /// Module at which the visit has arrived, from the root of the crate.
    module: Vec<String>,
    found: Vec<(usize, String)>,
}

impl Names {
    /// Adds a path. A path that begins with `super` or `self` is added as the path from the root of the crate that has
    /// the same meaning, so that no number of `super` leads around a rule.
    fn add(&mut self, line: usize, name: String) {
        let relative = name.split("::").take_while(|segment| matches!(*segment, "super" | "self"));
        let (ups, steps) =
            relative.fold((0, 0), |(ups, steps), segment| (ups + usize::from(segment == "super"), steps + 1));
        if steps == 0 {
            return self.found.push((line, name));
        }
        let above = &self.module[..self.module.len().saturating_sub(ups)];
        let segments = above.iter().map(String::as_str).chain(name.split("::").skip(steps));
        let absolute: Vec<_> = std::iter::once("crate").chain(segments).collect();
        self.found.push((line, absolute.join("::")));
    }

    fn flatten(&mut self, prefix: &str, tree: &syn::UseTree) {
        let join = |name: &syn::Ident| {
            if prefix.is_empty() { name.to_string() } else { format!("{prefix}::{name}") }
        };
        match tree {
            syn::UseTree::Path(path) => self.flatten(&join(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.add(name.span().start().line, join(&name.ident)),
            syn::UseTree::Rename(rename) => self.add(rename.span().start().line, join(&rename.ident)),
            syn::UseTree::Glob(glob) => self.add(glob.span().start().line, prefix.to_owned()),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.flatten(prefix, item)),
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.flatten("", &item.tree);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.add(path.span().start().line, segments.join("::"));
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_that_names_one_above_it_is_found_however_it_does() {
        let above = [
            "use crate::verbs::Worker;",
            "use crate::{Access, gid::choose};",
            "fn f(_: crate::QueuePair<()>) {}",
        ];
        for text in above {
            assert_eq!(check("rdma-core/src/memory/region/mod.rs", text).len(), 1, "{text}");
            assert!(check("rdma-core/src/verbs/worker/mod.rs", text).is_empty(), "{text}");
        }
        assert_eq!(check("rdma-core/src/verbs/x.rs", "use crate::backend::{dispatch, soft::*};").len(), 1);
        assert_eq!(check("rdma-collective/src/kv/push.rs", "use crate::collective;").len(), 1);
        assert_eq!(
            check("rdma-collective/src/collective/schedule/ring.rs", "use rdma_core::Deadline;").len(),
            1
        );
        assert!(
            check("rdma-core/src/memory/region/mod.rs", "use crate::{Access, error::RangeError};").is_empty()
        );
    }

    #[test]
    fn verbs_read_no_environment_variable() {
        for text in
            ["fn f() { let _ = std::env::var(\"X\"); }", "use std::env;", "use std::env::var_os as get;"]
        {
            assert_eq!(check("rdma-core/src/verbs/context.rs", text).len(), 1, "{text}");
            assert!(check("rdma-core/src/backend/soft/mod.rs", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_path_through_the_parents_is_found_too() {
        for text in [
            "use super::super::super::collective::Pending;",
            "fn f(_: super::super::super::collective::Pending) {}",
            "use self::super::super::super::collective;",
            "mod inner { use super::super::super::super::collective::Pending; }",
        ] {
            assert_eq!(check("rdma-collective/src/kv/push/offer.rs", text).len(), 1, "{text}");
        }
        for text in ["use super::super::collective::Pending;", "pub(super) fn f() {}", "use super::*;"] {
            assert!(check("rdma-collective/src/kv/push/offer.rs", text).is_empty(), "{text}");
        }
        assert_eq!(check("rdma-collective/src/kv/mod.rs", "use super::collective;").len(), 1);
        assert!(check("rdma-collective/src/kv/push/mod.rs", "use super::collective;").is_empty());
    }
}
