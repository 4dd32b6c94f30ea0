//! Functions of a source file by their lines. Instances of a generic function and the closures in it share its lines,
//! so that each function counts once however the compiler splits it. Functions that a macro makes have the lines of the
//! macro, which counts as one function.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Function as the source has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    /// Line of the signature.
    pub first: usize,
    /// Line of the closing brace.
    pub last: usize,
    /// Name, behind the type whose method it is.
    pub name: String,
}

/// Functions of a file in the order of their lines, nested ones after those around them.
pub fn functions(text: &str) -> Vec<Function> {
    let mut visitor = Visitor::default();
    if let Ok(file) = syn::parse_file(text) {
        visitor.visit_file(&file);
    }
    visitor.found.sort();
    visitor.found
}

/// Innermost function around `line`. Code of derived traits lies in none.
pub fn around(functions: &[Function], line: usize) -> Option<&Function> {
    functions.iter().rfind(|function| (function.first..=function.last).contains(&line))
}

#[derive(Default)]
struct Visitor {
    /// Type whose methods are visited.
    owner: Option<String>,
    found: Vec<Function>,
}

impl Visitor {
    fn note(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let name = match &self.owner {
            Some(owner) => format!("{owner}::{}", signature.ident),
            None => signature.ident.to_string(),
        };
        let (first, last) = (signature.span().start().line, block.span().end().line);
        self.found.push(Function { first, last, name });
    }

    fn within(&mut self, owner: Option<String>, visit: impl FnOnce(&mut Visitor)) {
        let around = std::mem::replace(&mut self.owner, owner);
        visit(self);
        self.owner = around;
    }
}

impl<'ast> Visit<'ast> for Visitor {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.within(None, |visitor| {
            visitor.note(&item.sig, &item.block);
            visit::visit_item_fn(visitor, item);
        });
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let owner = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
            _ => None,
        };
        self.within(owner, |visitor| visit::visit_item_impl(visitor, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.within(Some(item.ident.to_string()), |visitor| visit::visit_item_trait(visitor, item));
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        let (first, last) = (item.span().start().line, item.span().end().line);
        let name = item.ident.as_ref().or(item.mac.path.segments.last().map(|segment| &segment.ident));
        let name = name.map_or_else(|| "a macro".to_owned(), |name| format!("{name}!"));
        self.found.push(Function { first, last, name });
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.note(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.note(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_belongs_to_the_innermost_function() {
        let text = "struct A;\nimpl A {\n    fn f() {\n        fn g() {\n        }\n        || 1;\n    }\n}\ntrait T {\n    fn h() {}\n    fn i();\n}\n";
        let functions = functions(text);
        let name = |line| around(&functions, line).map(|function| function.name.as_str());
        assert_eq!([3, 5, 6, 10].map(name), [Some("A::f"), Some("g"), Some("A::f"), Some("T::h")]);
        assert_eq!([1, 8, 11].map(name), [None; 3]);
    }

    #[test]
    fn a_macro_is_one_function() {
        let text = "macro_rules! make {\n    () => {\n        fn f() {}\n    };\n}\nmake! {\n    u8\n}\n";
        let functions = functions(text);
        let names: Vec<_> =
            functions.iter().map(|function| (function.first, function.name.as_str())).collect();
        assert_eq!(names, [(1, "make!"), (6, "make!")]);
    }
}
