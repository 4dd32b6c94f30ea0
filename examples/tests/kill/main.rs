//! Traces of a process that is killed or stopped: files, memory, sockets. `chaos` checks that survivors end in time and
//! name the lost process.

#[path = "../common/mod.rs"]
mod common;

mod signals;

use common::{TOKEN, free_port, start_with};
use rustix::process::Signal;
use std::thread::sleep;
use std::time::{Duration, Instant};

const ALLREDUCE: &str = env!("CARGO_BIN_EXE_allreduce");
const KVCACHE: &str = env!("CARGO_BIN_EXE_kvcache_transfer");

#[test]
fn decode_of_a_stopped_prefill_says_what_is_missing() {
    for wire in ["mapped", "tcp"] {
        let port = free_port();
        let flags = format!("--device soft --wire {wire} --prompt 4096 -T 60");
        let mut decode =
            start_with(KVCACHE, &format!("{flags} --role decode --listen 127.0.0.1:{port}"), &[TOKEN]);
        let prefill =
            start_with(KVCACHE, &format!("{flags} --role prefill --peer 127.0.0.1:{port}"), &[TOKEN]);
        decode.wait_for("Using device"); // connected
        prefill.signal(Signal::STOP);
        let decode = decode.finish().expect(1);
        assert!(decode.stdout.contains("missing"), "{}", decode.stdout);
        assert!(decode.stdout.contains("Other bytes changed  : 0 OK"), "{}", decode.stdout);
        prefill.signal(Signal::CONT);
        prefill.finish().expect(1);
    }
}

#[test]
fn ranks_do_not_outlive_their_launcher() {
    let mut launcher = start_with(ALLREDUCE, "--device soft --ranks 2 -b 1M -e 1M -n 100000000 -T 60", &[]);
    launcher.wait_for("busbw");
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", launcher.id())).unwrap();
    let ranks: Vec<u32> = children.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(ranks.len(), 2);
    drop(launcher);
    let alive = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        status.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    };
    let deadline = Instant::now() + common::LONG;
    while ranks.iter().any(alive) {
        assert!(Instant::now() < deadline, "a rank outlives its launcher");
        sleep(Duration::from_millis(20));
    }
}
