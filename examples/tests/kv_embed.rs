//! `kv_embed`: prefill and decode in two processes, with requests that are aborted by dropping their future.

mod common;

use common::{TOKEN, start_with};
use rustix::process::Signal;

const KV_EMBED: &str = env!("CARGO_BIN_EXE_kv_embed");

/// Runs so many requests against a prefill of their own; both check that nothing is left behind.
fn run(wire: &str, requests: usize) {
    let mut prefill = start_with(KV_EMBED, &format!("{wire} prefill"), &[TOKEN]);
    prefill.wait_for(":");
    let address = prefill.stdout().trim().to_owned();
    let line = format!("{wire} decode --prefill {address} --requests {requests} --abort 20");
    let decode = start_with(KV_EMBED, &line, &[TOKEN]).finish().expect(0);
    assert!(decode.stdout.contains("no wrong byte, nothing left"), "{}", decode.stdout);
    let count = |word: &str| {
        let before = decode.stdout.split(word).next().unwrap_or_default();
        before.split_whitespace().last().and_then(|count| count.parse::<usize>().ok()).unwrap()
    };
    let (done, aborted) = (count("requests done"), count("aborted"));
    assert_eq!(done + aborted, requests);
    // Some of those that may be aborted are done before.
    assert!(done >= requests * 8 / 10 && aborted > 0, "{}", decode.stdout);
    prefill.signal(Signal::TERM);
    prefill.finish().expect(0);
}

fn requests() -> usize {
    let is_full = std::env::var("SOAK").is_ok_and(|soak| soak == "full");
    if is_full { 10_000 } else { 500 }
}

#[test]
fn requests_and_aborted_ones_leave_nothing_behind_on_one_host() {
    run("", requests());
}

#[test]
fn requests_and_aborted_ones_leave_nothing_behind_over_tcp() {
    run("--tcp", requests());
}

#[test]
fn the_guide_prints_the_program() {
    let guide = include_str!("../../docs/guide.md");
    for file in
        [include_str!("../src/bin/kv_embed/prefill.rs"), include_str!("../src/bin/kv_embed/decode.rs")]
    {
        assert!(guide.contains(file), "docs/guide.md prints another version of this file:\n{file}");
        assert!(file.lines().count() <= 100);
    }
}
