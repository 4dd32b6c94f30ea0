//! Tests of the rules for code: small sources that break or keep each rule.

use super::*;

fn lines(path: &str, text: &str) -> Vec<usize> {
    check(path, text).into_iter().map(|finding| finding.line).collect()
}

fn function(lines: usize) -> String {
    format!("//! Header.\n\n/// Doc.\nfn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
}

#[test]
fn a_file_may_have_600_lines_and_no_more() {
    let longest = format!("//! Header.\n{}", "const A: u8 = 0;\n".repeat(FILE_LINES_MAX - 1));
    assert_eq!(lines("a.rs", &longest), [0usize; 0]);
    assert_eq!(lines("a.rs", &format!("{longest}\n")), [0]);
}

#[test]
fn a_function_may_have_70_lines_its_documentation_apart() {
    assert_eq!(lines("a.rs", &function(FUNCTION_LINES_MAX)), [0usize; 0]);
    assert_eq!(lines("a.rs", &function(FUNCTION_LINES_MAX + 1)), [4]);
}

#[test]
fn methods_and_defaults_are_measured_as_well() {
    let body = "\n".repeat(FUNCTION_LINES_MAX);
    let method = format!("//! H.\nimpl A {{\nfn f() {{{body}}}\n}}\n");
    let default = format!("//! H.\ntrait A {{\nfn f();\nfn g() {{{body}}}\n}}\n");
    let nested = format!("//! H.\nmod m {{\nfn f() {{ fn g() {{{body}}} }}\n}}\n");
    assert_eq!(lines("a.rs", &method), [3]);
    assert_eq!(lines("a.rs", &default), [4]);
    assert_eq!(lines("a.rs", &nested), [3, 3]);
}

#[test]
fn every_file_has_a_header() {
    assert_eq!(lines("a.rs", "/// Not a header.\nfn f() {}\n"), [1]);
    assert_eq!(lines("a.rs", ""), [1]);
}

#[test]
fn unsafe_stays_in_its_homes() {
    let expected = "//! H.\n#![expect(unsafe_code, reason = \"maps memory\")]\nfn f() { unsafe { g() } }\n";
    assert_eq!(lines("rdma-core/src/memory/region/mod.rs", expected), [0usize; 0]);
    assert_eq!(lines("rdma-core/src/verbs/region.rs", expected), [3]);
}

#[test]
fn the_lint_is_lifted_by_an_expectation_with_a_reason_alone() {
    let path = "rdma-core/src/memory/region/mod.rs";
    let item = "//! H.\n#[expect(unsafe_code, reason = \"maps memory\")]\nfn f() { unsafe { g() } }\n";
    assert_eq!(lines(path, item), [0usize; 0]);
    for attribute in
        ["#![allow(unsafe_code)]", "#![expect(unsafe_code)]", "#![cfg_attr(a, allow(unsafe_code))]"]
    {
        assert_eq!(lines(path, &format!("//! H.\n{attribute}\nfn f() {{}}\n")), [2], "{attribute}");
    }
    assert_eq!(lines("rdma-core/src/lib.rs", "//! H.\n#![deny(unsafe_code)]\n"), [0usize; 0]);
}

#[test]
fn unsafe_in_a_macro_counts_and_in_words_does_not() {
    assert_eq!(lines("a.rs", "//! H.\nm! { unsafe { g() } }\n"), [2]);
    assert_eq!(lines("a.rs", "//! An unsafe header.\nconst A: &str = \"unsafe\"; // unsafe\n"), [0usize; 0]);
}

#[test]
fn unfinished_work_is_found() {
    assert_eq!(lines("a.rs", "//! H.\nfn f() {\n    todo!();\n    dbg!(1);\n}\n"), [3, 4]);
    assert_eq!(lines("a.rs", "//! H.\nfn f() { m!(unimplemented!()) }\n"), [2]);
    assert_eq!(lines("a.rs", "//! `todo!()`.\nfn f(todo: u8) -> bool { todo != 1 }\n"), [0usize; 0]);
}

#[test]
fn a_file_that_does_not_parse_is_a_finding() {
    assert_eq!(lines("a.rs", "//! H.\nfn f( {\n").len(), 1);
}

#[test]
fn only_the_log_of_the_libraries_calls_tracing() {
    let text = "//! H.\nfn f() { tracing::warn!(\"a\"); }\n";
    assert_eq!(lines("rdma-core/src/backend/a.rs", text), [2]);
    assert_eq!(lines("rdma-collective/src/engine/a.rs", "//! H.\nuse tracing::debug;\n"), [2]);
    for path in [KEPT[0].homes[0], "rdma-core/tests/a.rs", "rdma-core/src/a/tests.rs", "examples/src/a.rs"] {
        assert_eq!(lines(path, text), [0usize; 0], "{path}");
    }
    let kept = "//! Words on tracing.\nfn f() { crate::log::warn!(\"tracing\"); }\n";
    assert_eq!(lines("rdma-core/src/a.rs", kept), [0usize; 0]);
}

#[test]
fn only_the_executor_over_links_posts_messages_of_collectives() {
    for call in ["link.outbox.put_with(lane, None, 0, f)", "Outbox::put_range(outbox)", "m!(lane.note(imm))"]
    {
        let text = format!("//! H.\nfn f() {{ {call}; }}\n");
        assert_eq!(lines("rdma-collective/src/collective/execute/send_recv.rs", &text), [2], "{call}");
        let others = ["rdma-collective/src/link/a.rs", "rdma-collective/src/collective/execute/tests.rs"];
        for path in KEPT[1].homes.iter().copied().chain(others) {
            assert_eq!(lines(path, &text), [0usize; 0], "{path}");
        }
    }
}
