//! Names of types, and how many types share each. A name with several meanings sends a reader to the wrong file.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};

use super::source::{self, Source};

/// Number of types of each name in `sources`, tests left out. Associated types of traits count only if `associated`.
pub fn names<'a>(sources: impl Iterator<Item = &'a Source>, associated: bool) -> BTreeMap<String, usize> {
    let mut names = Names { associated, found: BTreeMap::new() };
    for source in sources.filter(|source| !source.is_named_tests && !source.is_only_tests) {
        names.visit_file(&source.syntax);
    }
    names.found
}

struct Names {
    associated: bool,
    found: BTreeMap<String, usize>,
}

impl Names {
    fn note(&mut self, name: &syn::Ident) {
        *self.found.entry(name.to_string()).or_default() += 1;
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !source::is_only_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.note(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.note(&item.ident);
    }

    fn visit_item_union(&mut self, item: &'ast syn::ItemUnion) {
        self.note(&item.ident);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.note(&item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.note(&item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_trait_item_type(&mut self, item: &'ast syn::TraitItemType) {
        if self.associated {
            self.note(&item.ident);
        }
    }

    fn visit_impl_item_type(&mut self, item: &'ast syn::ImplItemType) {
        if self.associated {
            self.note(&item.ident);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_tests_and_associated_types_are_told_apart() {
        let text =
            "struct A; mod m { enum A {} trait T { type A; } }\n#[cfg(test)]\nmod tests { struct A; }\n";
        let files = [("a/src/lib.rs".to_owned(), text.to_owned())].into();
        let sources = source::parse(&files, &["a/src/"]);
        assert_eq!(names(sources.iter(), false)["A"], 2);
        assert_eq!(names(sources.iter(), true)["A"], 3);
    }
}
