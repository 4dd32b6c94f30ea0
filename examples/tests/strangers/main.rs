//! Strangers at every port of a job: the store, the TCP wire and the listener of a KV link. Real programs with few
//! descriptors end right beside more strangers than they have descriptors, from before the job meets until it ends.
//!
//! `cargo xtask soak` (`SOAK=full`) tries all kinds of strangers at each limit; without it each limit has some, and all
//! limits together have all.

#[path = "../common/mod.rs"]
mod common;

mod crowd;

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use common::{LONG, Running, free_port, start_with};
use crowd::{Kind, PidList, TOKEN, beside};

const ALLREDUCE: &str = env!("CARGO_BIN_EXE_allreduce");
const KVCACHE: &str = env!("CARGO_BIN_EXE_kvcache_transfer");

/// The descriptors that each process may have (`ulimit -n`), and the ranks of the job.
#[derive(Clone, Copy)]
struct Limit {
    descriptors: usize,
    ranks: usize,
}

const LIMITS: [Limit; 3] = [
    Limit { descriptors: 64, ranks: 2 },
    Limit { descriptors: 256, ranks: 4 },
    Limit { descriptors: 1024, ranks: 4 },
];

impl Limit {
    /// Starts a program with so few descriptors.
    fn start(self, program: &str, line: &str, variables: &[(&str, &str)]) -> Running {
        let token: String = TOKEN.iter().map(|byte| format!("{byte:02x}")).collect();
        let variables = [variables, &[("RDMA_JOB_TOKEN", token.as_str())]].concat();
        start_with("prlimit", &format!("--nofile={} {program} {line}", self.descriptors), &variables)
    }

    fn rank(self, rank: usize, port: u16) -> Running {
        let (rank, ranks, port) = (rank.to_string(), self.ranks.to_string(), port.to_string());
        let place = [
            ("RANK", rank.as_str()),
            ("WORLD_SIZE", &ranks),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", &port),
        ];
        self.start(ALLREDUCE, "--device soft --wire tcp -b 64K -e 64K -n 300 -w 1 -c 1 -T 120", &place)
    }

    fn side(self, role: &str, port: u16) -> Running {
        let place = if role == "decode" { "--listen" } else { "--peer" };
        let line = format!(
            "--device soft --wire tcp --prompt 256 --requests 20 --concurrency 2 -T 120 --role {role} {place} 127.0.0.1:{port}"
        );
        self.start(KVCACHE, &line, &[])
    }

    /// Runs one job beside strangers: `first` waits at the port, and the others come.
    fn run(self, kind: Kind, first: impl FnOnce(u16) -> Running, others: impl FnOnce(u16) -> Vec<Running>) {
        let crowd = self.descriptors + self.descriptors / 4;
        let (port, pids) = (free_port(), PidList::default());
        println!("{kind:?}, {crowd} at each port, {} descriptors, {} ranks", self.descriptors, self.ranks);
        let since = Instant::now();
        beside(kind, crowd, port, &pids, |came| {
            let mut processes = vec![first(port)];
            pids.add(processes[0].id());
            while came.load(Ordering::Relaxed) < crowd && processes[0].is_running() {
                assert!(since.elapsed() < LONG, "only {came:?} strangers came");
                sleep(Duration::from_millis(10));
            }
            processes.extend(others(port));
            processes.iter().for_each(|process| pids.add(process.id()));
            for process in processes {
                process.finish().expect(0);
            }
        });
        assert!(since.elapsed() < LONG, "the strangers held the job up");
    }

    fn all_reduce(self, kind: Kind) {
        self.run(
            kind,
            |port| self.rank(0, port),
            |port| (1..self.ranks).map(|rank| self.rank(rank, port)).collect(),
        );
    }

    fn kv_transfer(self, kind: Kind) {
        self.run(kind, |port| self.side("decode", port), |port| vec![self.side("prefill", port)]);
    }
}

/// The kinds that are tried at the limit of this index. Idle strangers come at each, because they take most
/// descriptors.
fn kinds(index: usize) -> impl Iterator<Item = Kind> {
    let is_full = std::env::var("SOAK").is_ok_and(|soak| soak == "full");
    let of_limit = move |(at, _): &(usize, Kind)| is_full || *at == 0 || at % LIMITS.len() == index;
    Kind::ALL.into_iter().enumerate().filter(of_limit).map(|(_, kind)| kind)
}

/// Gives this process the descriptors that the strangers take. The programs set their own limit.
fn raise_own_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

fn at_limit(index: usize, job: impl Fn(Limit, Kind)) {
    raise_own_limit();
    kinds(index).for_each(|kind| job(LIMITS[index], kind));
}

#[test]
fn two_ranks_with_64_descriptors_end_right_beside_strangers() {
    at_limit(0, Limit::all_reduce);
}

#[test]
fn four_ranks_with_256_descriptors_end_right_beside_strangers() {
    at_limit(1, Limit::all_reduce);
}

#[test]
fn four_ranks_with_1024_descriptors_end_right_beside_strangers() {
    at_limit(2, Limit::all_reduce);
}

#[test]
fn a_kv_transfer_with_64_descriptors_ends_right_beside_strangers() {
    at_limit(0, Limit::kv_transfer);
}

#[test]
fn a_kv_transfer_with_256_descriptors_ends_right_beside_strangers() {
    at_limit(1, Limit::kv_transfer);
}

#[test]
fn a_kv_transfer_with_1024_descriptors_ends_right_beside_strangers() {
    at_limit(2, Limit::kv_transfer);
}
