//! Runs the whole suite on the software device, once for each wire, exactly as the program does.

use std::process::Command;

fn suite(wire: &str) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_conformance")).args(["--device", "soft", "--wire", wire]).output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let verdict = text.lines().last().unwrap_or_default();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(verdict.ends_with(" passed, 0 failed, 0 skipped"), "{verdict}");
    let listed =
        Command::new(env!("CARGO_BIN_EXE_conformance")).args(["--list", "--wire", wire]).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout);
    assert_eq!(verdict, format!("{} passed, 0 failed, 0 skipped", listed.lines().count()));
}

#[test]
fn the_suite_holds_on_the_wire_that_is_chosen_by_itself() {
    suite("auto");
}

#[test]
fn the_suite_holds_on_the_local_wire() {
    suite("local");
}

#[test]
fn the_suite_holds_on_the_mapped_wire_and_between_two_processes() {
    suite("mapped");
}

#[test]
fn the_suite_holds_over_tcp_and_between_two_processes() {
    suite("tcp");
}

/// The suite must not shrink: it promises at least 60 cases, of which 25 are exact.
#[test]
fn there_are_as_many_cases_as_promised() {
    let cases = conformance::cases::all();
    let exact = cases.iter().filter(|case| case.exact).count();
    assert!(cases.len() >= 60 && exact >= 25, "{} cases, {exact} exact", cases.len());
    let mut names: Vec<_> = cases.iter().map(|case| case.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cases.len());
}
