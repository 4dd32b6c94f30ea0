//! Ranks as processes of one host: they meet, they reduce, and a killed one is named by the others.

#[path = "../common/mod.rs"]
mod common;
mod early;
mod hosts;
mod signals;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{is_soak, long};
use rdma_collective::bootstrap::SpawnError;
use rdma_collective::bootstrap::{LocalRanks, StoreClient};
use rdma_collective::collective::CollectiveError;
use rdma_collective::collective::CommunicatorError;
use rdma_collective::collective::{Communicator, CommunicatorOptions, WaitError};
use rdma_collective::collective::{DataType, ReduceOp};
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_core::{Access, Deadline, Device, Memory, PeerAccess, SoftOptions, Wire};
use rustix::process::{Pid, Signal, getpid, kill_process};

/// The variable that says what the processes do.
const ROLE: &str = "TEST_ROLE";

/// The variable that names the wire of their device.
const WIRE: &str = "TEST_WIRE";
/// The wires, and the access that each gives to processes of one host.
const WIRES: [(&str, Wire, PeerAccess); 2] =
    [("auto", Wire::Auto, PeerAccess::Mapped), ("tcp", Wire::Tcp, PeerAccess::Stream)];

/// This test program, running nothing but one rank.
fn rank_process(role: &str, wire: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "one_rank", "--nocapture"]).stdout(Stdio::null());
    command.env(ROLE, role).env(WIRE, wire);
    command
}

#[test]
#[ignore = "one rank of the processes that the other tests start"]
fn one_rank() {
    let join = LocalRanks::joined().unwrap().expect("started by the other tests alone");
    let role = std::env::var(ROLE).unwrap();
    let mut store = StoreClient::connect(join, long()).unwrap();
    let named = std::env::var(WIRE).unwrap();
    let (_, wire, access) = WIRES.into_iter().find(|(name, ..)| *name == named).unwrap();
    let context = Device::soft(SoftOptions { wire, ..SoftOptions::default() }).open().unwrap();
    let engine = Engine::new(&context, EngineOptions::default()).unwrap();
    let mut comm = Communicator::new(&engine, &mut store, CommunicatorOptions::default(), long()).unwrap();
    assert!(comm.neighbours().all(|(_, is)| is == access));
    let (rank, ranks) = (comm.rank(), comm.size());
    let mut data = vec![(rank + 1) as f32; 300_000];
    comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
    let sum = (ranks * (ranks + 1) / 2) as f32;
    assert!(data.iter().all(|element| *element == sum));
    // Whoever is killed has told everybody else what they need before.
    store.barrier("reduced", long()).unwrap();
    match (role.as_str(), rank) {
        ("reduce", _) => comm.close(long()).unwrap(),
        ("kill", 1) => kill_process(getpid(), Signal::KILL).unwrap(),
        ("kill", _) => match comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap_err() {
            CollectiveError::PeerFailed { rank: 1, .. } | CollectiveError::Aborted { culprit: 1, .. } => {}
            other => panic!("rank {rank}: {other}"),
        },
        ("kill in small" | "kill in pieces" | "kill in barriers", _) => {
            suffer(rank, Signal::KILL);
            match until_an_error(&mut comm, operation_of(&role)) {
                CollectiveError::PeerFailed { rank: 1, .. } | CollectiveError::Aborted { culprit: 1, .. } => {
                }
                other => panic!("rank {rank}: {other}"),
            }
        }
        ("stop in small" | "stop in pieces" | "stop in barriers", _) => {
            suffer(rank, Signal::STOP);
            match until_an_error(&mut comm, operation_of(&role)) {
                CollectiveError::Fenced { .. } if rank == 1 => {}
                CollectiveError::PeerFailed { rank: 1, .. } | CollectiveError::Aborted { culprit: 1, .. } => {
                }
                other => panic!("rank {rank}: {other}"),
            }
            if rank == 0 {
                let stopped = Pid::from_raw(comm.ranks()[1].pid as i32).unwrap();
                kill_process(stopped, Signal::CONT).unwrap();
            }
        }
        ("kill in splits" | "stop in splits", _) => {
            let signal = if role.starts_with("stop") { Signal::STOP } else { Signal::KILL };
            suffer(rank, signal);
            in_splits(&mut comm, signal);
        }
        ("kill in large" | "stop in large", _) => {
            let signal = if role.starts_with("stop") { Signal::STOP } else { Signal::KILL };
            suffer(rank, signal);
            in_large(&mut comm, &engine, signal, None);
        }
        ("kill at a beginning" | "stop at a beginning", _) => {
            let signal = if role.starts_with("stop") { Signal::STOP } else { Signal::KILL };
            in_large(&mut comm, &engine, signal, Some(20));
        }
        ("give and leave" | "give and be killed", _) => early::give_and_go(comm, role.ends_with("killed")),
        ("fail", 2) => std::process::exit(7),
        ("fail" | "wait", _) => std::thread::sleep(Duration::from_secs(120)),
        other => panic!("{other:?}"),
    }
}

/// Rank 1 does it to itself at some moment a little later, whatever it is in then.
fn suffer(rank: u32, signal: Signal) {
    if rank == 1 {
        let chance = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.subsec_nanos());
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(40) + Duration::from_nanos(u64::from(chance) / 25));
            kill_process(getpid(), signal).unwrap();
        });
    }
}

type Operation = fn(&mut Communicator) -> Result<(), CollectiveError>;

/// The operation that ranks repeat; on one host it needs no link.
fn operation_of(role: &str) -> Operation {
    if role.ends_with("barriers") {
        |comm| comm.barrier(long())
    } else if role.ends_with("pieces") {
        |comm| comm.all_reduce(&mut vec![1_u64; 50_000], ReduceOp::Sum, long())
    } else {
        |comm| comm.all_reduce(&mut [1_u64; 5], ReduceOp::Sum, long())
    }
}

/// Operations one after the other, to the first that fails: soon after the last that did not.
fn until_an_error(comm: &mut Communicator, operation: Operation) -> CollectiveError {
    loop {
        let begun = Instant::now();
        if let Err(error) = operation(comm) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
            return error;
        }
    }
}

/// Communicators of some of the ranks, with rank 1 or without it, to the first that fails to be made.
fn in_splits(comm: &mut Communicator, signal: Signal) {
    let rank = comm.rank();
    let (error, took) = (0..)
        .find_map(|number| {
            let (begun, color) = (Instant::now(), rank >> (number % 3));
            match comm.split((color < 2).then_some(color), -(rank as i32), long()) {
                Ok(made) => {
                    // The operations of the other ranks may have failed by now, so the result here does not matter.
                    drop(made.map(|made| made.close(Deadline::after(Duration::from_millis(100)))));
                    None
                }
                Err(error) => Some((error, begun.elapsed())),
            }
        })
        .unwrap();
    assert!(took < Duration::from_secs(30), "{error}");
    match error {
        CommunicatorError::Parent(CollectiveError::Fenced { .. }) if rank == 1 => {}
        CommunicatorError::Parent(
            CollectiveError::PeerFailed { rank: 1, .. } | CollectiveError::Aborted { culprit: 1, .. },
        ) => {}
        other => panic!("rank {rank}: {other}"),
    }
    if rank == 0 && signal == Signal::STOP {
        let stopped = Pid::from_raw(comm.ranks()[1].pid as i32).unwrap();
        kill_process(stopped, Signal::CONT).unwrap();
    }
}

/// Operations on memory that the others reach, to the first that fails: then it is nobody's but this rank's, whatever
/// the one that was stopped was at when it goes on. Rank 1 suffers it by itself once it has begun operation `last`, if
/// that is told.
fn in_large(comm: &mut Communicator, engine: &Engine, signal: Signal, last: Option<u32>) {
    const BYTES: usize = 8 << 20;
    let region = engine.register(Memory::allocate(BYTES).unwrap(), Access::LOCAL_WRITE).unwrap();
    let (begun, mut number) = (Instant::now(), 0);
    let error = loop {
        let started = comm.start_all_reduce_region(&region, 0..BYTES, DataType::F32, ReduceOp::Sum, long());
        number += 1;
        if comm.rank() == 1 && last == Some(number) {
            kill_process(getpid(), signal).unwrap();
        }
        match started.map(|pending| pending.wait(long())) {
            Ok(Ok(())) => assert!(begun.elapsed() < Duration::from_secs(40)),
            Ok(Err(WaitError::Failed(error))) | Err(error) => break error,
            Ok(Err(error)) => panic!("{error}"),
        }
    };
    let rank = comm.rank();
    match error {
        CollectiveError::Fenced { .. } if rank == 1 => return,
        CollectiveError::PeerFailed { rank: 1, .. } | CollectiveError::Aborted { culprit: 1, .. } => {}
        other => panic!("rank {rank}: {other}"),
    }
    let pattern = vec![0xa5; BYTES];
    region.copy_in(0, &pattern).unwrap();
    if rank == 0 && signal == Signal::STOP {
        std::thread::sleep(Duration::from_millis(200));
        let stopped = Pid::from_raw(comm.ranks()[1].pid as i32).unwrap();
        kill_process(stopped, Signal::CONT).unwrap();
    }
    let mut bytes = vec![0; BYTES];
    let until = Instant::now() + Duration::from_millis(600);
    while Instant::now() < until {
        region.copy_out(0, &mut bytes).unwrap();
        assert!(bytes == pattern, "rank {rank}: a byte of another rank's landed late");
    }
}

#[test]
fn a_process_that_is_killed_or_stopped_among_large_operations_writes_nothing_any_more() {
    for when in ["in large", "in large", "at a beginning", "at a beginning"] {
        let ranks = LocalRanks::spawn(4, |_| rank_process(&format!("kill {when}"), "auto")).unwrap();
        let error = ranks.wait(long()).unwrap_err();
        let only = matches!(&error, SpawnError::Failed { rank: 1, killed, .. } if killed.is_empty());
        assert!(only && error.to_string().contains("signal: 9"), "{when}: {error:?}");
        let ranks = LocalRanks::spawn(4, |_| rank_process(&format!("stop {when}"), "auto")).unwrap();
        ranks.wait(long()).unwrap_or_else(|error| panic!("{when}: {error}"));
    }
}

#[test]
fn a_process_that_is_killed_or_stopped_among_operations_without_links_is_named_by_all_others() {
    for kill in ["kill in small", "kill in pieces"] {
        for _ in 0..3 {
            let ranks = LocalRanks::spawn(4, |_| rank_process(kill, "auto")).unwrap();
            let error = ranks.wait(long()).unwrap_err();
            let only = matches!(&error, SpawnError::Failed { rank: 1, killed, .. } if killed.is_empty());
            assert!(only && error.to_string().contains("signal: 9"), "{error:?}");
        }
    }
    for stop in ["stop in small", "stop in pieces"] {
        LocalRanks::spawn(4, |_| rank_process(stop, "auto")).unwrap().wait(long()).unwrap();
    }
}

/// Asserts that the others name a rank that is killed, and one that is stopped, in the midst of many operations.
fn assert_named_among(operations: &str, ranks: u32) {
    for (wire, ..) in WIRES {
        for _ in 0..if is_soak() { 50 } else { 3 } {
            let kill = format!("kill in {operations}");
            let ranks = LocalRanks::spawn(ranks, |_| rank_process(&kill, wire)).unwrap();
            let error = ranks.wait(long()).unwrap_err();
            let only = matches!(&error, SpawnError::Failed { rank: 1, killed, .. } if killed.is_empty());
            assert!(only && error.to_string().contains("signal: 9"), "{wire}: {error:?}");
        }
        for _ in 0..if is_soak() { 5 } else { 1 } {
            let stop = format!("stop in {operations}");
            let ranks = LocalRanks::spawn(ranks, |_| rank_process(&stop, wire)).unwrap();
            ranks.wait(long()).unwrap_or_else(|error| panic!("{wire}: {error}"));
        }
    }
}

#[test]
fn a_process_that_is_killed_or_stopped_among_barriers_is_named_by_all_others() {
    assert_named_among("barriers", 3);
}

#[test]
fn a_process_that_is_killed_or_stopped_among_splits_is_named_by_all_others() {
    assert_named_among("splits", 4);
}

#[test]
fn processes_meet_and_reduce() {
    for (wire, ..) in WIRES {
        for ranks in [1, 2, 4] {
            LocalRanks::spawn(ranks, |_| rank_process("reduce", wire)).unwrap().wait(long()).unwrap();
        }
    }
}

#[test]
fn a_killed_process_is_named_by_all_others() {
    for (wire, ..) in WIRES {
        let ranks = LocalRanks::spawn(4, |_| rank_process("kill", wire)).unwrap();
        let error = ranks.wait(long()).unwrap_err();
        // Only the killed one fails: the others end well when they have named it.
        let only = matches!(&error, SpawnError::Failed { rank: 1, killed, .. } if killed.is_empty());
        assert!(only, "{wire}: {error:?}");
        assert!(error.to_string().contains("signal: 9"), "{wire}: {error}");
    }
}

#[test]
fn the_first_that_fails_is_told_and_nobody_is_waited_for_in_vain() {
    let ranks = LocalRanks::spawn(3, |_| rank_process("fail", "auto")).unwrap();
    let error = ranks.wait(long()).unwrap_err();
    let SpawnError::Failed { rank: 2, status, mut killed } = error else { panic!("{error}") };
    killed.sort_unstable();
    assert_eq!((status.code(), killed), (Some(7), vec![0, 1]));
}

#[test]
fn processes_that_do_not_end_are_killed_at_the_deadline_and_when_dropped() {
    let ranks = LocalRanks::spawn(2, |_| rank_process("wait", "auto")).unwrap();
    let error = ranks.wait(Deadline::after(Duration::from_secs(2))).unwrap_err();
    assert!(matches!(&error, SpawnError::DeadlineExceeded { ranks, .. } if ranks.len() == 2), "{error}");

    let ranks = LocalRanks::spawn(2, |_| rank_process("wait", "auto")).unwrap();
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
