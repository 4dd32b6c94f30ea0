//! A rank that is killed amid an operation, and a host that vanishes: all ranks elsewhere name it in time.

use std::thread::sleep;
use std::time::{Duration, Instant};

use examples::collectives::Collective;
use examples::hosts::Hosts;
use rdma_collective::collective::Algorithm;
use rdma_collective::engine::EngineOptions;
use rustix::process::Signal;

use crate::{CASES, Case, RANKS, SHAPES, hosts, is_soak, start, turn};

/// How long after the loss a rank may still run, beyond its `peer_timeout`.
const SLACK: Duration = Duration::from_secs(2);

/// The loss that a job suffers.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// A rank is killed, of which its kernel tells the others.
    Rank(usize),
    /// A host is cut off, of which nothing tells the others.
    Host(usize),
}

impl Loss {
    /// The ranks that are lost to all others.
    fn ranks(self, per_host: usize) -> std::ops::Range<usize> {
        match self {
            Self::Rank(rank) => rank..rank + 1,
            Self::Host(host) => host * per_host..(host + 1) * per_host,
        }
    }
}

/// Causes a loss amid operations, and checks that each rank elsewhere ends in time and names a rank that is lost.
fn assert_named(hosts: &Hosts, per_host: usize, case: Case, loss: Loss) {
    let line = "-b 1M -e 1M -n 100000000 -w 0 -c 0 -T 60";
    let mut ranks = start(hosts, per_host, (case.0, Some(case.1)), line);
    ranks[0].wait_for("busbw");
    // Some operations later.
    sleep(Duration::from_millis(500));
    let begun = Instant::now();
    match loss {
        Loss::Rank(rank) => ranks[rank].signal(Signal::KILL),
        Loss::Host(host) => hosts.cut(host).unwrap(),
    }
    let lost = loss.ranks(per_host);
    let within = EngineOptions::default().peer_timeout + SLACK;
    let survivors = (0..RANKS).filter(|rank| !lost.contains(rank));
    while survivors.clone().any(|rank| ranks[rank].is_running()) {
        if begun.elapsed() > within {
            let still: Vec<_> = survivors.filter(|rank| ranks[*rank].is_running()).collect();
            panic!("{case:?}, {loss:?}: ranks {still:?} still run after {within:?}");
        }
        sleep(Duration::from_millis(10));
    }
    println!("{case:?} on {per_host} ranks a host, {loss:?}: {:?}", begun.elapsed());
    for (number, rank) in ranks.into_iter().enumerate().filter(|(number, _)| !lost.contains(number)) {
        let ended = rank.finish().expect(1);
        let last = ended.stderr.trim_end().lines().last().unwrap_or_default();
        let named = lost.clone().any(|rank| last.contains(&format!("rank {rank} ")));
        assert!(named, "{case:?}, {loss:?}: rank {number} names another:\n{}", ended.stderr);
    }
    if let Loss::Host(host) = loss {
        hosts.mend(host).unwrap();
    }
}

/// The cases of a plain run: the first of each algorithm.
fn cases() -> impl Iterator<Item = (usize, Case)> {
    let is_first = |number: usize, by: Algorithm| CASES[..number].iter().all(|(_, other)| *other != by);
    CASES.into_iter().enumerate().filter(move |(number, (_, by))| is_soak() || is_first(*number, *by))
}

fn each_case(loss: impl Fn(usize, usize) -> Loss) {
    let _turn = turn();
    for (count, per_host) in SHAPES {
        // In a plain run, each case meets one shape.
        let is_due = |number: &usize| is_soak() || SHAPES[number % 2].0 == count;
        let cases: Vec<_> = cases().filter(|(number, _)| is_due(number)).collect();
        let possible = |by| per_host > 1 || by != Algorithm::Hierarchical;
        let Some(hosts) = (!cases.is_empty()).then(|| hosts(count)).flatten() else { continue };
        for (number, case) in cases.into_iter().filter(|(_, (_, by))| possible(*by)) {
            assert_named(&hosts, per_host, case, loss(number, count));
        }
    }
}

#[test]
fn a_rank_that_is_killed_is_named_by_all_others() {
    each_case(|number, _| Loss::Rank((number * 3 + 1) % RANKS));
}

#[test]
fn a_host_that_vanishes_is_named_by_all_others() {
    each_case(|number, count| Loss::Host(number % count));
}

#[test]
fn rank_0_is_named_when_its_host_vanishes() {
    let _turn = turn();
    let Some(hosts) = hosts(4) else { return };
    assert_named(&hosts, 2, (Collective::AllReduce, Algorithm::Ring), Loss::Host(0));
}
