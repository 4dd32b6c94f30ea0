//! The collectives' programs between hosts: 2 hosts of 4 ranks, 4 of 2 and 8 of 1, each with a network of its own
//! ([`examples::hosts`]). Every element is right, by each algorithm that goes over links; and a rank that is killed, or
//! a host that vanishes, is named by all others in time.
//!
//! A soak (`SOAK=full`) takes each algorithm of each collective through all shapes and losses; without it there are
//! some of each.

#[path = "../common/mod.rs"]
mod common;
mod lost;
mod rails;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{Running, TOKEN, program, unsteered};
use examples::collectives::Collective;
use examples::columns::parse::ParsedTable;
use examples::hosts::{Hosts, HostsError, name};
use rdma_collective::collective::Algorithm;

/// Hosts, and ranks on each of them.
const SHAPES: [(usize, usize); 3] = [(2, 4), (4, 2), (8, 1)];
const RANKS: usize = 8;

/// An operation, and the algorithm that it is made to take.
type Case = (Collective, Algorithm);

/// Every algorithm that a collective can take over links.
const CASES: [Case; 14] = [
    (Collective::AllReduce, Algorithm::Ring),
    (Collective::AllReduce, Algorithm::Tree),
    (Collective::AllReduce, Algorithm::Hierarchical),
    (Collective::AllToAll, Algorithm::Pairs),
    (Collective::AllToAll, Algorithm::Bruck),
    (Collective::Gather, Algorithm::Tree),
    (Collective::Broadcast, Algorithm::Ring),
    (Collective::Reduce, Algorithm::Ring),
    (Collective::AllGather, Algorithm::Ring),
    (Collective::ReduceScatter, Algorithm::Ring),
    (Collective::Broadcast, Algorithm::Tree),
    (Collective::Reduce, Algorithm::Tree),
    (Collective::Scatter, Algorithm::Tree),
    (Collective::SendRecv, Algorithm::Pairs),
];

/// Lets one test have the machine: each has more ranks than there may be cores.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_soak() -> bool {
    std::env::var("SOAK").is_ok_and(|soak| soak == "full")
}

/// Hosts; none where this user may not make namespaces, which in CI is a failure.
fn hosts(count: usize) -> Option<Hosts> {
    hosts_with(|| Hosts::new(count, None))
}

fn hosts_with(make: impl FnOnce() -> Result<Hosts, HostsError>) -> Option<Hosts> {
    match make() {
        Ok(hosts) => Some(hosts),
        Err(why) => {
            assert!(!std::env::var("CI").is_ok_and(|ci| ci == "true" || ci == "1"), "{why}");
            eprintln!("left out: {why}");
            None
        }
    }
}

/// Starts a rank in each place. The ranks say which algorithm they take.
fn start(hosts: &Hosts, per_host: usize, case: (Collective, Option<Algorithm>), line: &str) -> Vec<Running> {
    start_over(hosts, per_host, case, line, ("soft", []))
}

/// Starts a rank in each place, over these devices and with these variables.
fn start_over<const N: usize>(
    hosts: &Hosts,
    per_host: usize,
    (of, by): (Collective, Option<Algorithm>),
    line: &str,
    (devices, variables): (&str, [(&str, &str); N]),
) -> Vec<Running> {
    let ranks = hosts.places(per_host, 29500).map(|place| {
        let mut command = hosts.command(place.host, program(of));
        unsteered(&mut command);
        command.args(["--device", devices]).args(line.split_whitespace());
        command.envs(place.variables).envs([TOKEN, ("NCCL_DEBUG", "INFO")]).envs(variables);
        command.envs(by.map(|algorithm| ("NCCL_ALGO", algorithm.to_string())));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::spawn(command)
    });
    ranks.collect()
}

/// Whether the log of a rank says that it took this algorithm.
fn took(log: &str, (of, by): Case) -> bool {
    // Sends between two ranks go over their link; there is nothing to choose.
    let took = format!(" bytes: {by}");
    of == Collective::SendRecv || log.lines().any(|line| line.contains(" of up to ") && line.contains(&took))
}

/// Checks that every element is right, that ranks are on their hosts, and that those of one host share memory.
fn assert_right(hosts: &Hosts, per_host: usize, (of, by): (Collective, Option<Algorithm>)) {
    let line = "-b 64 -e 256K -f 64 -n 2 -w 1 -c 1 -r 5 -T 60";
    let ended: Vec<_> = start(hosts, per_host, (of, by), line).into_iter().map(Running::finish).collect();
    let ended: Vec<_> = ended.into_iter().map(|rank| rank.expect(0)).collect();
    let text = &ended[0].stdout;
    let table = ParsedTable::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    table.verify(of, RANKS).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!((table.rows.len(), table.out_of_bounds, table.ok), (3, 0, true), "{text}");
    let halves = table.rows.iter().flat_map(|row| [row.out_of_place, row.in_place]);
    assert!(halves.filter_map(|half| half.wrong).all(|wrong| wrong == 0.0), "{text}");
    for host in 0..RANKS / per_host {
        assert_eq!(text.matches(&format!("{:>10} device", name(host))).count(), per_host, "{text}");
    }
    assert!(text.contains("wire tcp,"), "{text}");
    assert_eq!(text.contains("wire mapped,"), per_host > 1, "{text}");
    if let Some(by) = by {
        assert!(took(&ended[0].stderr, (of, by)), "{of:?} did not take {by}:\n{}", ended[0].stderr);
    }
}

#[test]
fn every_collective_is_right_between_hosts() {
    let _turn = turn();
    for (count, per_host) in SHAPES {
        let Some(hosts) = hosts(count) else { return };
        Collective::ALL.iter().for_each(|of| assert_right(&hosts, per_host, (*of, None)));
    }
}

#[test]
fn every_algorithm_is_right_between_hosts() {
    let _turn = turn();
    for (count, per_host) in SHAPES.into_iter().filter(|(hosts, _)| *hosts == 4 || is_soak()) {
        let Some(hosts) = hosts(count) else { return };
        // A hierarchy has two levels.
        let cases = CASES.into_iter().filter(|(_, by)| per_host > 1 || *by != Algorithm::Hierarchical);
        cases.for_each(|(of, by)| assert_right(&hosts, per_host, (of, Some(by))));
    }
}

#[test]
fn every_algorithm_over_links_has_a_case() {
    let in_memory = [Algorithm::Flat, Algorithm::Direct, Algorithm::Pieces];
    for algorithm in Algorithm::ALL.iter().filter(|algorithm| !in_memory.contains(algorithm)) {
        assert!(CASES.iter().any(|(_, by)| by == algorithm), "{algorithm} has no case");
    }
}

/// Processes in this network namespace.
fn inside(network: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let networks = processes.filter_map(|process| fs::read_link(process.path().join("ns/net")).ok());
    networks.filter(|one| one.to_string_lossy() == network).count()
}

#[test]
fn nothing_of_hosts_is_left_after_a_panic() {
    let _turn = turn();
    let mut networks = Vec::new();
    let result = catch_unwind(AssertUnwindSafe(|| {
        let Some(hosts) = hosts(2) else { return };
        let mut identify = |host| {
            let mut command = hosts.command(host, "/bin/sh");
            command.args(["-c", "readlink /proc/self/ns/net; hostname; cat /proc/sys/kernel/random/boot_id"]);
            let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
            let [network, name, boot] = said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
            networks.push(network.to_owned());
            (name.to_owned(), boot.to_owned())
        };
        let [(first, boot), (second, other)] = [0, 1].map(&mut identify);
        assert_eq!([first, second], [name(0), name(1)]);
        assert_ne!(boot, other);
        assert!(networks.iter().all(|network| inside(network) > 0));
        panic!("as a test that fails");
    }));
    assert!(networks.is_empty() || result.is_err());
    assert!(networks.iter().all(|network| inside(network) == 0), "{networks:?}");
    let devices = fs::read_to_string("/proc/net/dev").unwrap();
    assert!(!devices.contains("port0:") && !devices.contains("switch:"), "{devices}");
}
