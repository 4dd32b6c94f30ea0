//! Ranks as processes over TCP: they meet, they reduce, and a killed one is named by the others.

mod common;

use std::process::{Command, Stdio};
use std::time::Duration;

use common::long;
use rdma_collective::collective::ReduceOp;
use rdma_collective::comm::bootstrap::{LocalRanks, StoreClient};
use rdma_collective::comm::{Communicator, CommunicatorOptions, Engine, EngineOptions};
use rdma_collective::error::{CollectiveError, SpawnError};
use rdma_core::{Deadline, Device, PeerAccess, SoftOptions};

/// What the processes do, by this variable.
const ROLE: &str = "TEST_ROLE";

/// This test program, running nothing but one rank.
fn rank_process(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "one_rank", "--nocapture"]).env(ROLE, role).stdout(Stdio::null());
    command
}

#[test]
#[ignore = "one rank of the processes that the other tests start"]
fn one_rank() {
    let join = LocalRanks::joined().unwrap().expect("started by the other tests alone");
    let role = std::env::var(ROLE).unwrap();
    let mut store = StoreClient::connect(join, long()).unwrap();
    let context = Device::soft(SoftOptions::default()).open().unwrap();
    let engine = Engine::new(&context, EngineOptions::default()).unwrap();
    let mut comm = Communicator::new(&engine, &mut store, CommunicatorOptions::default(), long()).unwrap();
    assert!(comm.neighbours().all(|(_, access)| access == PeerAccess::Stream));
    let (rank, ranks) = (comm.rank(), comm.size());
    let mut data = vec![(rank + 1) as f32; 300_000];
    comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
    let sum = (ranks * (ranks + 1) / 2) as f32;
    assert!(data.iter().all(|element| *element == sum));
    // Whoever is killed has told everybody else what they need before.
    store.barrier("reduced", long()).unwrap();
    match (role.as_str(), rank) {
        ("reduce", _) => comm.close(long()).unwrap(),
        ("kill", 1) => {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap()
        }
        ("kill", _) => match comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap_err() {
            CollectiveError::PeerFailed { rank: 1, .. } | CollectiveError::Aborted { culprit: 1, .. } => {}
            other => panic!("rank {rank}: {other}"),
        },
        ("fail", 2) => std::process::exit(7),
        ("fail" | "wait", _) => std::thread::sleep(Duration::from_secs(120)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn processes_meet_and_reduce() {
    for ranks in [1, 2, 4] {
        LocalRanks::spawn(ranks, |_| rank_process("reduce")).unwrap().wait(long()).unwrap();
    }
}

#[test]
fn a_killed_process_is_named_by_all_others() {
    let error = LocalRanks::spawn(4, |_| rank_process("kill")).unwrap().wait(long()).unwrap_err();
    // Only the killed one fails: the others end well when they have named it.
    assert!(matches!(&error, SpawnError::Failed { rank: 1, killed, .. } if killed.is_empty()), "{error:?}");
    assert!(error.to_string().contains("signal: 9"), "{error}");
}

#[test]
fn the_first_that_fails_is_told_and_nobody_is_waited_for_in_vain() {
    let ranks = LocalRanks::spawn(3, |_| rank_process("fail")).unwrap();
    let error = ranks.wait(long()).unwrap_err();
    let SpawnError::Failed { rank: 2, status, mut killed } = error else { panic!("{error}") };
    killed.sort_unstable();
    assert_eq!((status.code(), killed), (Some(7), vec![0, 1]));
}

#[test]
fn processes_that_do_not_end_are_killed_at_the_deadline_and_when_dropped() {
    let ranks = LocalRanks::spawn(2, |_| rank_process("wait")).unwrap();
    let error = ranks.wait(Deadline::after(Duration::from_secs(2))).unwrap_err();
    assert!(matches!(&error, SpawnError::DeadlineExceeded { ranks, .. } if ranks.len() == 2), "{error}");

    let ranks = LocalRanks::spawn(2, |_| rank_process("wait")).unwrap();
    let pids: Vec<_> = ranks.processes().map(|(_, pid)| pid).collect();
    drop(ranks);
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()));
}

#[test]
#[ignore = "a process with an empty token, that the test below starts"]
fn no_rank() {
    assert!(LocalRanks::joined().unwrap().is_none());
}

#[test]
fn an_empty_token_is_none_and_one_that_cannot_be_is_an_error() {
    use std::os::unix::ffi::OsStrExt;
    let process = |token: &[u8]| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "no_rank"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("RDMA_JOB_TOKEN", std::ffi::OsStr::from_bytes(token)).output().unwrap()
    };
    assert!(process(b"").status.success());
    for token in [&b"xyz"[..], b"\xff\xfe"] {
        let ended = process(token);
        let told = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && told.contains("RDMA_JOB_TOKEN"), "{told}");
    }
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let error = LocalRanks::spawn(2, |_| Command::new("/no/such/program")).unwrap_err();
    assert!(
        matches!(&error, SpawnError::Start { rank: 0, program, .. } if program == "/no/such/program"),
        "{error}"
    );
}
