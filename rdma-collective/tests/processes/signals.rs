//! A rank on an RDMA device is killed, or stopped and resumed, amid operations of every kind: the others say soon, or
//! at their deadlines, that it was that one, and it says itself that they went on without it.
//!
//! On the software device the programs' chaos does so; here a round takes as little as there is to it, since soft-RoCE
//! is mostly in a machine that is emulated, and takes seconds to start a process. `cargo xtask soft-roce` runs it;
//! `ROCE_DEVICE=soft` will do to try it.

use std::fmt;
use std::ops::Range;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use rdma_collective::bootstrap::SpawnError;
use rdma_collective::bootstrap::{LocalRanks, StoreClient};
use rdma_collective::collective::CollectiveError;
use rdma_collective::collective::ReduceOp;
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_core::{Context, Deadline, Device, DeviceList, SoftOptions};
use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::common::{is_soak, long};

const RANKS: u32 = 3;
/// The time that an operation may take while a rank is stopped: less than the engine needs to find out that it is
/// silent.
const DEADLINE: Duration = Duration::from_secs(2);
/// How long the last operation of one that is not stopped may have taken, wherever this runs: far less than waits
/// otherwise may.
const SLACK: Duration = Duration::from_secs(20);
/// How long a job may take.
const PATIENCE: Duration = Duration::from_secs(200);
/// The signal comes within that much of the first operation.
const MOMENTS: Duration = Duration::from_millis(300);
/// Some messages to each neighbour.
const ELEMENTS: usize = 24_000;

/// The operations that the ranks repeat, with a root where there is one.
type Operation = fn(&mut Communicator, &mut [f32], u32, Deadline) -> Result<(), CollectiveError>;

const OPERATIONS: [(&str, Operation); 11] = [
    ("all-reduce", |comm, data, _, deadline| comm.all_reduce(data, ReduceOp::Sum, deadline)),
    ("reduce-scatter", |comm, data, _, deadline| comm.reduce_scatter(data, ReduceOp::Sum, deadline)),
    ("all-gather", |comm, data, _, deadline| comm.all_gather(data, deadline)),
    ("broadcast", |comm, data, root, deadline| comm.broadcast(data, root, deadline)),
    ("reduce", |comm, data, root, deadline| comm.reduce(data, ReduceOp::Sum, root, deadline)),
    ("gather", |comm, data, root, deadline| comm.gather(data, root, deadline)),
    ("scatter", |comm, data, root, deadline| comm.scatter(data, root, deadline)),
    ("all-to-all", |comm, data, _, deadline| comm.all_to_all(data, deadline)),
    ("send and receive", |comm, data, _, deadline| {
        let (rank, ranks) = (comm.rank(), comm.size());
        comm.send_recv_replace(data, (rank + 1) % ranks, (rank + ranks - 1) % ranks, deadline)
    }),
    ("barrier", |comm, _, _, deadline| comm.barrier(deadline)),
    ("all-to-all-v", |comm, data, root, deadline| {
        // As many back as there, and to one nothing.
        let counts: Vec<usize> =
            (0..comm.size()).map(|to| ((comm.rank() + to + root) % 3) as usize * 4000).collect();
        let (input, output) = data.split_at_mut(counts.iter().sum());
        comm.all_to_all_v(input, &counts, &mut output[..input.len()], &counts, deadline)
    }),
];

/// A signal to one rank in the middle of one of the operations.
struct Round {
    signal: Signal,
    operation: usize,
    victim: u32,
    root: u32,
}

impl Round {
    /// Ranks take turns.
    fn of(signal: Signal, operation: usize) -> Self {
        let number = operation as u32;
        Self { signal, operation, victim: number % RANKS, root: number / 2 % RANKS }
    }

    /// The time that an operation may take.
    fn patience(&self) -> Duration {
        if self.signal == Signal::STOP { DEADLINE } else { Duration::from_secs(60) }
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = OPERATIONS[self.operation];
        write!(f, "{name}, rank {} of {RANKS}, root {}", self.victim, self.root)
    }
}

/// How the processes of a job are told what it is: a signal, and operations.
const SIGNAL: &str = "TEST_SIGNAL";
const ROUNDS: &str = "TEST_ROUNDS";

/// Processes that go through rounds.
fn job(signal: Signal, rounds: Range<usize>) -> Result<(), SpawnError> {
    let began = Instant::now();
    let process = |_| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "signals::one_rank_of_a_job", "--nocapture"]);
        command.stdout(Stdio::null());
        command.env(SIGNAL, if signal == Signal::STOP { "stop" } else { "kill" });
        command.env(ROUNDS, format!("{} {}", rounds.start, rounds.end));
        command
    };
    let ended = LocalRanks::spawn(RANKS, process).unwrap().wait(Deadline::after(PATIENCE));
    println!("device {}, rounds {rounds:?}: {:.1} s", device().name(), began.elapsed().as_secs_f64());
    ended
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask soft-roce"]
fn a_rank_on_a_device_that_is_killed_in_any_operation_is_named_by_all_others() {
    for operation in (0..OPERATIONS.len()).step_by(if is_soak() { 1 } else { 4 }) {
        let round = Round::of(Signal::KILL, operation);
        match job(Signal::KILL, operation..operation + 1) {
            // Only the victim fails: the others end well when they have named it.
            Err(SpawnError::Failed { rank, status, killed }) if rank == round.victim => {
                let is_it = status.to_string().contains("signal: 9") && killed.is_empty();
                assert!(is_it, "{round}: {status}, {killed:?}");
            }
            other => panic!("{round}: {other:?}"),
        }
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask soft-roce"]
fn a_rank_on_a_device_that_is_stopped_in_any_operation_is_named_by_all_others_and_says_so_itself() {
    // Without a soak, mostly others than those in which a rank is killed.
    let first = if is_soak() { 0 } else { 7 };
    job(Signal::STOP, first..OPERATIONS.len()).unwrap();
}

fn device() -> Context {
    let name = std::env::var("ROCE_DEVICE").expect("ROCE_DEVICE names the device");
    match name.as_str() {
        "soft" => Device::soft(SoftOptions::default()).open().unwrap(),
        name => DeviceList::probe().find(name).unwrap().open().unwrap(),
    }
}

#[test]
#[ignore = "one rank of the processes that the other tests start"]
fn one_rank_of_a_job() {
    let join = LocalRanks::joined().unwrap().expect("started by the other tests alone");
    let [signal, rounds] = [SIGNAL, ROUNDS].map(|name| std::env::var(name).unwrap());
    let signal = if signal == "stop" { Signal::STOP } else { Signal::KILL };
    let (first, end) = rounds.split_once(' ').unwrap();
    let mut store = StoreClient::connect(join, long()).unwrap();
    let context = device();
    for operation in first.parse().unwrap()..end.parse().unwrap() {
        Round::of(signal, operation).go(&context, &mut store);
    }
}

impl Round {
    fn go(&self, context: &Context, store: &mut StoreClient) {
        let engine = Engine::new(context, EngineOptions::default()).unwrap();
        let options = CommunicatorOptions { epoch: self.operation as u32, ..CommunicatorOptions::default() };
        let mut comm = Communicator::new(&engine, store, options, long()).unwrap();
        comm.connect(long()).unwrap();
        let mut data = vec![0.0; ELEMENTS];
        let (name, operation) = OPERATIONS[self.operation];
        operation(&mut comm, &mut data, self.root, long()).unwrap();
        store.barrier(&format!("{name} is done once"), long()).unwrap();
        if comm.rank() == self.victim {
            self.suffer();
        }
        let error = loop {
            let begun = Instant::now();
            let deadline = Deadline::after(self.patience());
            if let Err(error) = operation(&mut comm, &mut data, self.root, deadline) {
                let in_time = comm.rank() == self.victim || begun.elapsed() < SLACK;
                assert!(in_time, "{self}: after {:?}: {error}", begun.elapsed());
                break error;
            }
        };
        self.judge(&comm, &error);
        if self.signal == Signal::STOP && comm.rank() != self.victim {
            self.resume(&comm, store);
        }
    }

    /// This process does it to itself, at some moment.
    fn suffer(&self) {
        let (signal, chance) = (self.signal, UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos()));
        thread::spawn(move || {
            thread::sleep(Duration::from_nanos((chance % MOMENTS.as_nanos()) as u64));
            kill_process(getpid(), signal).unwrap();
        });
    }

    /// Asserts that the error names the victim, or that the victim itself says what happened to it.
    fn judge(&self, comm: &Communicator, error: &CollectiveError) {
        let rank = comm.rank();
        let named = match error {
            CollectiveError::Fenced { .. } => {
                return assert_eq!(rank, self.victim, "{self}: rank {rank}: {error}");
            }
            CollectiveError::PeerFailed { rank, .. } | CollectiveError::DeadlineExceeded { rank, .. } => {
                *rank
            }
            CollectiveError::Aborted { culprit, .. } => *culprit,
            other => panic!("{self}: rank {rank}: {other}"),
        };
        assert!(rank != self.victim && named == self.victim, "{self}: rank {rank}: {error}");
    }

    /// Lets the victim go on when all others have said who it is.
    fn resume(&self, comm: &Communicator, store: &mut StoreClient) {
        let (name, _) = OPERATIONS[self.operation];
        let said = |rank: u32| format!("rank {rank} has left {name}");
        store.set(&said(comm.rank()), &[], long()).unwrap();
        let others: Vec<u32> = (0..RANKS).filter(|rank| *rank != self.victim).collect();
        if comm.rank() != others[0] {
            return;
        }
        for rank in others {
            store.get(&said(rank), long()).unwrap();
        }
        let pid = Pid::from_raw(comm.ranks()[self.victim as usize].pid.cast_signed()).unwrap();
        kill_process(pid, Signal::CONT).unwrap();
    }
}
