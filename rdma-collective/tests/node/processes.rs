//! Peers in processes of their own: one that is killed is noticed at once, and its name is free for the next.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rdma_collective::kv::KvError;
use rdma_core::Wire;
use rustix::process::Signal;

use crate::common::{block_on, long};
use crate::job::{Member, Role, member};
use crate::pair::{assert_freed, assert_moved, line, parse};

/// The error comes within that much of the death, wherever this runs.
const WITHIN: Duration = Duration::from_secs(5);

/// A process with a prefill node named "p".
struct Prefill {
    child: Child,
    blob: Vec<u8>,
}

impl Prefill {
    fn start(wire: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["processes::one_prefill", "--exact", "--ignored", "--nocapture"])
            .env("TEST_WIRE", wire)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines.map_while(Result::ok).find(|line| line.starts_with("blob "));
        let blob = said.and_then(|line| parse(&line)).expect("it says its blob");
        Self { child, blob }
    }

    /// Connects a node to this one, and has it push some blocks.
    fn fill(&self, node: &Member, request: u64) {
        let peer = node.node.connect(&self.blob, long()).wait().unwrap();
        let grant = node.node.grant(peer.as_str(), request, &[3, 4], long()).wait().unwrap();
        assert!(grant.wait().unwrap().verdicts.all_valid());
        assert_moved(node.destination.as_ref().unwrap(), &[(0, 3), (1, 4)]);
    }
}

impl Drop for Prefill {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Waits for the node of the test, and pushes two blocks for each request from 1 on, until it is killed.
#[test]
#[ignore = "a peer of the other tests, which start it"]
fn one_prefill() {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let wire =
        if std::env::var("TEST_WIRE").is_ok_and(|wire| wire == "tcp") { Wire::Tcp } else { Wire::Mapped };
    let own = member(wire, "p", Role::Prefill);
    print!("\n{}", line(&own.node.export()));
    std::io::stdout().flush().unwrap();
    while own.node.peers().is_empty() {
        std::thread::yield_now();
    }
    for request in 1.. {
        let Ok(push) = own.node.push("d", request, &[0, 1], long()).wait() else { break };
        if push.wait().is_err() {
            break;
        }
    }
    _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_peer_that_is_killed_is_noticed_at_every_request_and_the_next_of_its_name_is_welcome() {
    for wire in ["mapped", "tcp"] {
        let kind = if wire == "tcp" { Wire::Tcp } else { Wire::Mapped };
        let node = member(kind, "d", Role::Decode);
        for round in 0..5 {
            let prefill = Prefill::start(wire);
            prefill.fill(&node, 1);
            // Requests that the peer never pushes.
            let grants: Vec<_> = (0..8_u32)
                .map(|at| node.node.grant("p", 100 + u64::from(at), &[8 + at], long()).wait().unwrap())
                .collect();
            let (pid, left) = (prefill.child.id(), node.node.left("p"));
            let killed = Instant::now();
            drop(prefill);
            for grant in grants {
                let error = grant.wait().unwrap_err();
                assert!(matches!(*error.cause, KvError::PeerFailed { .. }), "{error}");
                assert!(error.to_string().contains(&format!("process {pid}")), "{error}");
            }
            block_on(left);
            let after = killed.elapsed();
            assert!(after < WITHIN, "{wire}, round {round}: {after:?} after the death");
            assert_freed(node.destination.as_ref().unwrap(), &[8, 9, 10, 11, 12, 13, 14, 15]);
        }
    }
}

/// Starts the tests that read the books of their process.
#[test]
fn what_nodes_have_taken_goes_with_them() {
    for test in [
        "bad_input::ten_thousand_strangers_take_little_and_keep_no_peer_out",
        "closed::nothing_is_left_of_a_node_the_moment_it_is_closed",
        "meet::one_of_two_connects_and_both_know_each_other_until_one_leaves",
        "moves::a_begin_that_is_dropped_at_any_poll_begins_nothing",
    ] {
        let ended = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(
            ended.status.success() && said.contains("1 passed"),
            "{said}{}",
            String::from_utf8_lossy(&ended.stderr)
        );
    }
}
