//! Rules for Rust code: sizes, the header, where `unsafe` may stand, and macros that stand for unfinished work.
//! `syn` parses the file, so that a comment or a string never counts as code. [`comments`] judges the comments.
//!
//! [`comments`]: super::comments

use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;

/// Most lines of a file, comments and tests included.
const FILE_LINES_MAX: usize = 600;
/// Most lines of a function, from its signature to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Folders and files where `unsafe` may stand, each with its reason.
const UNSAFE_HOMES: [&str; 9] = [
    "rdma-core/src/backend/",             // talks to the C library and to shared mappings
    "rdma-core/src/memory/",              // owns the memory that devices write
    "rdma-core/tests/forked/raw.rs",      // forks, and calls what is unsafe in the public API
    "rdma-core/tests/mapped/in_place.rs", // calls what the public API has of it
    "rdma-core/tests/mapped/peer_slice/run.rs", // calls the same public API as in_place.rs
    "rdma-core/tests/mapped/raw.rs",      // unmaps memory, forks and sets limits to provoke failures
    "rdma-core/tests/unwinding/raw.rs",   // makes system calls fail
    "rdma-collective/src/collective/reduce/kernels/", // runs instructions that only some processors have
    "rdma-core/abi-check/",               // reads a table that a C compiler made
];
/// Names that only one folder may use within some others. Tests are exempt.
struct Kept {
    names: &'static [&'static str],
    within: &'static [&'static str],
    homes: &'static [&'static str],
    message: &'static str,
}

const KEPT: [Kept; 2] = [
    Kept {
        names: &["tracing"],
        within: &["rdma-core/src/", "rdma-collective/src/"],
        homes: &["rdma-core/src/log/"],
        message: "write log lines by `crate::log`: a subscriber that `tracing` calls here may panic or call the \
                  library, under whatever lock is held",
    },
    Kept {
        names: &["put_with", "put_range", "put_staged", "note"],
        within: &["rdma-collective/src/collective/"],
        // The executor, and the link, which hands the messages of all lanes on.
        homes: &[
            "rdma-collective/src/collective/execute/link_exec/",
            "rdma-collective/src/collective/communicator/link.rs",
            "rdma-collective/src/collective/communicator/lanes/",
        ],
        message: "post messages of collectives by the executor over links: a second one would count slots and credits \
                  of its own",
    },
];
/// Macros that must not reach the main branch.
const UNFINISHED: [&str; 3] = ["todo", "dbg", "unimplemented"];

/// Checks one file against all rules of this file.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Findings { path, list: Vec::new() };
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        findings.add(0, format!("{lines} lines, {FILE_LINES_MAX} at most: split it by what its parts own"));
    }
    if !text.starts_with("//!") {
        findings.add(
            1,
            "no `//!` header: say what the file owns, and what it leaves to its neighbour".to_owned(),
        );
    }
    match syn::parse_file(text) {
        Ok(file) => {
            Syntax { findings: &mut findings }.visit_file(&file);
            check_tokens(text, &mut findings);
        }
        Err(error) => findings.add(error.span().start().line, format!("does not parse: {error}")),
    }
    findings.list
}

struct Findings<'a> {
    path: &'a str,
    list: Vec<Finding>,
}

impl Findings<'_> {
    fn add(&mut self, line: usize, message: String) {
        self.list.push(Finding { path: self.path.to_owned(), line, message });
    }
}

/// Visitor that measures functions and finds attributes that lift the crate's `#![deny(unsafe_code)]`.
struct Syntax<'a, 'b> {
    findings: &'a mut Findings<'b>,
}

impl Syntax<'_, '_> {
    fn measure(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.span().start().line;
        let lines = block.span().end().line - first + 1;
        if lines > FUNCTION_LINES_MAX {
            let name = &signature.ident;
            self.findings.add(first, format!("`{name}` has {lines} lines, {FUNCTION_LINES_MAX} at most"));
        }
    }
}

impl<'ast> Visit<'ast> for Syntax<'_, '_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.measure(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.measure(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.measure(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let syn::Meta::List(list) = &attribute.meta else { return };
        let mut words = Vec::new();
        collect_words(list.tokens.clone(), &mut words);
        let names = |name: &str| words.iter().any(|word| word == name);
        let denies = list.path.is_ident("deny") || list.path.is_ident("forbid");
        if names("unsafe_code") && !denies && !(list.path.is_ident("expect") && names("reason")) {
            let message = "lift `unsafe_code` by `expect(unsafe_code, reason = \"…\")`, and by nothing else";
            self.findings.add(attribute.span().start().line, message.to_owned());
        }
    }
}

fn collect_words(tokens: TokenStream, words: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect_words(group.stream(), words),
            token => words.push(token.to_string()),
        }
    }
}

/// Checks the tokens, those given to macros included, because `syn` does not parse a macro's input.
fn check_tokens(text: &str, findings: &mut Findings<'_>) {
    let Ok(tokens) = text.parse::<TokenStream>() else { return };
    let mut found = Tokens::default();
    found.collect(tokens);
    for (line, name) in found.unfinished {
        findings.add(line, format!("`{name}!` stands for unfinished work"));
    }
    let is_test = findings.path.ends_with("/tests.rs") || findings.path.contains("/tests/");
    for Kept { names, within, homes, message } in KEPT.iter().filter(|_| !is_test) {
        let is_within = within.iter().any(|folder| findings.path.starts_with(folder));
        let mut uses = found.names.iter().filter(|(_, name)| names.contains(&name.as_str()));
        let is_home = homes.iter().any(|home| findings.path.starts_with(home));
        if let Some((first, _)) = uses.next().filter(|_| is_within && !is_home) {
            findings.add(*first, (*message).to_owned());
        }
    }
    let at_home = UNSAFE_HOMES.iter().any(|home| findings.path.starts_with(home));
    if let Some(first) = found.unsafe_lines.first().filter(|_| !at_home) {
        findings.add(*first, format!("`unsafe` may stand only in {}", UNSAFE_HOMES.join(", ")));
    }
}

#[derive(Default)]
struct Tokens {
    unsafe_lines: Vec<usize>,
    /// Each name of [`KEPT`] with its line.
    names: Vec<(usize, String)>,
    unfinished: Vec<(usize, String)>,
}

impl Tokens {
    fn collect(&mut self, tokens: TokenStream) {
        let mut previous: Option<proc_macro2::Ident> = None;
        for token in tokens {
            let mut word = None;
            match token {
                TokenTree::Group(group) => self.collect(group.stream()),
                TokenTree::Ident(ident) if ident == "unsafe" => {
                    self.unsafe_lines.push(ident.span().start().line)
                }
                TokenTree::Ident(ident) => {
                    if KEPT.iter().flat_map(|kept| kept.names).any(|name| ident == name) {
                        self.names.push((ident.span().start().line, ident.to_string()));
                    }
                    word = Some(ident);
                }
                // `todo!`, and not `todo != x`.
                TokenTree::Punct(punct) if punct.as_char() == '!' && punct.spacing() == Spacing::Alone => {
                    self.note_macro(previous.as_ref());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            previous = word;
        }
    }

    fn note_macro(&mut self, name: Option<&proc_macro2::Ident>) {
        let Some(name) = name else { return };
        if UNFINISHED.iter().any(|unfinished| name == unfinished) {
            self.unfinished.push((name.span().start().line, name.to_string()));
        }
    }
}

#[cfg(test)]
mod tests;
