//! Real processes that are killed in the middle of their work: the others end by themselves, and say who is gone.

mod common;

use common::{Running, free_port, start_with};
use std::thread::sleep;
use std::time::{Duration, Instant};

const ALLREDUCE: &str = env!("CARGO_BIN_EXE_allreduce");

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
