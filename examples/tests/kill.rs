//! Real processes that are killed or stopped in the middle of their work: the others end by themselves, and say who.

mod common;

use common::{Ended, Running, free_port, start, start_with};
use rustix::process::Signal;
use std::thread::sleep;
use std::time::{Duration, Instant};

const ALLREDUCE: &str = env!("CARGO_BIN_EXE_allreduce");
const KVCACHE: &str = env!("CARGO_BIN_EXE_kvcache_transfer");

/// Ranks that have work for hours.
fn ranks(count: u32) -> Vec<Running> {
    let (world, port) = (count.to_string(), free_port().to_string());
    let rank = |rank: u32| {
        let variables = [
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", world.clone()),
            ("MASTER_ADDR", "127.0.0.1".to_owned()),
            ("MASTER_PORT", port.clone()),
        ];
        let variables: Vec<(&str, &str)> =
            variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        start_with(ALLREDUCE, "--device soft -b 1M -e 1M -n 100000000 -w 0 -T 60", &variables)
    };
    (0..count).map(rank).collect()
}

#[test]
fn survivors_of_a_killed_rank_end_and_name_it() {
    let mut ranks = ranks(3);
    ranks[0].wait_for("busbw"); // all are connected
    sleep(Duration::from_millis(500));
    drop(ranks.remove(1));
    let ended: Vec<_> = ranks.into_iter().map(|rank| rank.finish().expect(1)).collect();
    for survivor in &ended {
        assert!(survivor.stderr.contains("rank 1"), "{}", survivor.stderr);
    }
}

#[test]
fn survivors_of_a_stopped_rank_end_and_name_it() {
    let mut ranks = ranks(3);
    ranks[0].wait_for("busbw");
    sleep(Duration::from_millis(500));
    let stopped = ranks.remove(1);
    stopped.signal(Signal::STOP);
    let begin = Instant::now();
    for rank in ranks {
        let survivor = rank.finish().expect(1);
        assert!(survivor.stderr.contains("rank 1"), "{}", survivor.stderr);
    }
    assert!(begin.elapsed() < Duration::from_secs(100), "they waited for ever");
    stopped.signal(Signal::CONT);
    // It finds itself alone, and ends as well.
    stopped.finish().expect(1);
}

/// One side of a transfer is stopped; the other ends, and says what it lacks.
fn stop_one_side(stops: &str, stays: &str) -> Ended {
    let port = free_port();
    let flags = "--device soft --prompt 4096 -T 60";
    let mut waits = start(KVCACHE, &format!("{flags} --role {stays} --listen 127.0.0.1:{port}"));
    let stopped = start(KVCACHE, &format!("{flags} --role {stops} --peer 127.0.0.1:{port}"));
    waits.wait_for("Using device"); // connected
    stopped.signal(Signal::STOP);
    let survivor = waits.finish().expect(1);
    assert!(
        survivor.stderr.contains("is lost") || survivor.stderr.contains("deadline"),
        "{}",
        survivor.stderr
    );
    stopped.signal(Signal::CONT);
    stopped.finish().expect(1);
    survivor
}

#[test]
fn decode_of_a_stopped_prefill_ends_and_says_what_is_missing() {
    let decode = stop_one_side("prefill", "decode");
    assert!(decode.stdout.contains("missing"), "{}", decode.stdout);
    assert!(decode.stdout.contains("Other bytes changed  : 0 OK"), "{}", decode.stdout);
}

#[test]
fn prefill_of_a_stopped_decode_ends() {
    stop_one_side("decode", "prefill");
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
