//! A rank is killed or stopped amid an all-reduce that goes inside hosts first: all others name it, whichever part of
//! the way each is on, and none waits for it any longer. Hosts are names here, so that ranks of different ones go over
//! TCP.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use rdma_collective::bootstrap::SpawnError;
use rdma_collective::bootstrap::{LocalRanks, StoreClient};
use rdma_collective::collective::CollectiveError;
use rdma_collective::collective::ReduceOp;
use rdma_collective::collective::{Algorithm, Communicator, CommunicatorOptions};
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_core::{Deadline, Device, SoftOptions};
use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::common::{is_soak, long};

/// The variable for the processes: a digit for the host of each rank, the victim, its signal, and whether there are
/// links.
const HOSTS: &str = "TEST_HOSTS";
const VICTIM: &str = "TEST_VICTIM";
const SIGNAL: &str = "TEST_SIGNAL";
const LINKED: &str = "TEST_LINKED";

/// Several pieces, so that a rank is between hosts with one while it is inside its host with another.
const ELEMENTS: usize = 400_000;
/// How long the operation may have taken that fails, wherever this runs: far less than waits otherwise may.
const SLACK: Duration = Duration::from_secs(30);
/// The signal comes within that much of the first operation: of one that finds links, and of one that makes them.
const MOMENTS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(15)];

struct Case {
    hosts: &'static str,
    victim: u32,
    linked: bool,
}

/// Alike and not, and ranks that own a column and that own none.
const CASES: [Case; 5] = [
    Case { hosts: "0011", victim: 1, linked: true },
    Case { hosts: "0011", victim: 2, linked: false },
    Case { hosts: "0101", victim: 0, linked: true },
    Case { hosts: "0001", victim: 3, linked: true },
    Case { hosts: "0001", victim: 2, linked: true },
];

impl Case {
    fn run(&self, signal: &str) -> Result<(), SpawnError> {
        let process = |_| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--ignored", "--exact", "hosts::one_rank_of_hosts", "--nocapture"]);
            command.stdout(Stdio::null());
            command.env(HOSTS, self.hosts).env(VICTIM, self.victim.to_string());
            command.env(SIGNAL, signal).env(LINKED, self.linked.to_string());
            command
        };
        LocalRanks::spawn(self.hosts.len() as u32, process).unwrap().wait(Deadline::after(2 * SLACK))
    }
}

#[test]
fn a_process_that_is_killed_amid_an_all_reduce_of_several_hosts_is_named_by_all_others() {
    for case in &CASES {
        for _ in 0..if is_soak() { 20 } else { 2 } {
            match case.run("kill") {
                // Only the victim fails: the others end well when they have named it.
                Err(SpawnError::Failed { rank, status, killed }) if rank == case.victim => {
                    let is_it = status.to_string().contains("signal: 9") && killed.is_empty();
                    assert!(is_it, "{}, {rank}: {status}, {killed:?}", case.hosts);
                }
                other => panic!("{}, {}: {other:?}", case.hosts, case.victim),
            }
        }
    }
}

#[test]
fn a_process_that_is_stopped_amid_an_all_reduce_of_several_hosts_is_named_by_all_others_and_says_so_itself() {
    for case in &CASES {
        for _ in 0..if is_soak() { 5 } else { 1 } {
            case.run("stop").unwrap_or_else(|error| panic!("{}, {}: {error}", case.hosts, case.victim));
        }
    }
}

#[test]
#[ignore = "one rank of the processes that the other tests start"]
fn one_rank_of_hosts() {
    let join = LocalRanks::joined().unwrap().expect("started by the other tests alone");
    let [hosts, victim, signal, linked] =
        [HOSTS, VICTIM, SIGNAL, LINKED].map(|name| std::env::var(name).unwrap());
    let (victim, signal) =
        (victim.parse().unwrap(), if signal == "stop" { Signal::STOP } else { Signal::KILL });
    let mut store = StoreClient::connect(join, long()).unwrap();
    let rank = store.rank();
    let host_id = hosts.chars().nth(rank as usize).map(String::from);
    let algorithms = "hierarchical".parse().unwrap();
    let options = CommunicatorOptions { host_id, algorithms, ..CommunicatorOptions::default() };
    let engine = Engine::new(&Device::soft(SoftOptions::default()).open().unwrap(), EngineOptions::default());
    let mut comm = Communicator::new(&engine.unwrap(), &mut store, options, long()).unwrap();
    assert!(comm.can(Algorithm::Hierarchical));
    let mut data = vec![1.0_f32; ELEMENTS];
    let mut all_reduce = |comm: &mut Communicator| comm.all_reduce(&mut data, ReduceOp::Max, long());
    if linked == "true" {
        all_reduce(&mut comm).unwrap();
    }
    // Whoever is killed has told everybody else what they need before.
    store.barrier("begun", long()).unwrap();
    if rank == victim {
        suffer(signal, MOMENTS[usize::from(linked != "true")]);
    }
    let error = loop {
        let begun = Instant::now();
        if let Err(error) = all_reduce(&mut comm) {
            assert!(rank == victim || begun.elapsed() < SLACK, "{error}");
            break error;
        }
    };
    match error {
        CollectiveError::Fenced { .. } if rank == victim => return,
        CollectiveError::PeerFailed { rank: named, .. } | CollectiveError::Aborted { culprit: named, .. } => {
            assert!(named == victim && rank != victim, "rank {rank}: {error}");
        }
        other => panic!("rank {rank}: {other}"),
    }
    if signal == Signal::STOP && rank == u32::from(victim == 0) {
        let stopped = Pid::from_raw(comm.ranks()[victim as usize].pid.cast_signed()).unwrap();
        kill_process(stopped, Signal::CONT).unwrap();
    }
}

/// This process does it to itself, at some moment.
fn suffer(signal: Signal, within: Duration) {
    let chance = UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
    thread::spawn(move || {
        thread::sleep(Duration::from_nanos((chance % within.as_nanos()) as u64));
        kill_process(getpid(), signal).unwrap();
    });
}
