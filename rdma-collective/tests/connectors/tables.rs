//! The tables of `docs/servers.md` name tests that are there, and each test of a connector is in a table.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const MODULES: [&str; 4] = ["vllm", "sglang", "dynamo", "mistral"];

/// The names between backticks that are a test's: `vllm::a_test` of a connector, or `tests/layouts/tp.rs::a_test`.
fn named(document: &str) -> BTreeSet<(String, String)> {
    let names = document.split('`').skip(1).step_by(2).filter_map(|name| name.rsplit_once("::"));
    let file = |of: &str| match of {
        of if MODULES.contains(&of) => Some(format!("tests/connectors/{of}.rs")),
        of if of.starts_with("tests/") => Some(of.to_owned()),
        _ => None,
    };
    names.filter_map(|(of, test)| Some((file(of)?, test.to_owned()))).collect()
}

/// The tests of a file that run by themselves.
fn tests(file: &str) -> BTreeSet<(String, String)> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let functions = text.split("#[test]\nfn ").skip(1).filter_map(|rest| rest.split_once('('));
    functions.map(|(name, _)| (file.to_owned(), name.to_owned())).collect()
}

#[test]
fn each_table_of_the_document_names_tests_that_are_there_and_all_connectors_are_in_it() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/servers.md");
    let named = named(&fs::read_to_string(document).unwrap());
    let files: BTreeSet<String> = named.iter().map(|(file, _)| file.clone()).collect();
    let there: BTreeSet<_> = files.iter().flat_map(|file| tests(file)).collect();
    assert_eq!(named.difference(&there).collect::<Vec<_>>(), Vec::<&(String, String)>::new(), "no such test");
    let of_connectors: BTreeSet<_> =
        MODULES.iter().flat_map(|module| tests(&format!("tests/connectors/{module}.rs"))).collect();
    let missing: Vec<_> = of_connectors.difference(&named).collect();
    assert!(missing.is_empty(), "no table names {missing:?}");
    assert!(of_connectors.len() > 10, "the tests are found");
}
