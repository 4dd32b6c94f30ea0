//! Communicators that are made, used and closed over and over: the process holds what it held before. One test to a
//! process, whose descriptors, threads and mappings it counts.
//!
//! `cargo xtask soak` sets `SOAK=full` for the full number of rounds; without it there are a tenth of them.

mod common;
mod world;

use std::fs::{read_dir, read_to_string};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{WIRES, long};
use rdma_collective::collective::CommunicatorOptions;
use rdma_collective::collective::ReduceOp;
use rdma_core::Wire;
use world::each_communicator;

/// Rounds before the first count, which make what stays for the life of the process.
const WARM_UP: u32 = 20;
/// Mappings that the allocator may add and drop by itself; each round that leaves one is far beyond it.
const MAPPINGS_MORE: usize = 40;

/// Descriptors, mappings and memory of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    threads: usize,
    /// Memory of regions and buffers: one that is still registered is still mapped.
    memory: usize,
    mappings: usize,
}

impl Held {
    fn now() -> Self {
        let maps = read_to_string("/proc/self/maps").unwrap();
        Self {
            descriptors: read_dir("/proc/self/fd").unwrap().count(),
            threads: read_dir("/proc/self/task").unwrap().count(),
            memory: maps.lines().filter(|line| line.contains("memfd:")).count(),
            mappings: maps.lines().count(),
        }
    }

    fn is_no_more_than(&self, before: &Self) -> bool {
        self.descriptors <= before.descriptors
            && self.threads <= before.threads
            && self.memory <= before.memory
            && self.mappings <= before.mappings + MAPPINGS_MORE
    }
}

/// Does it so often, and finds nothing left behind. Sockets that were closed may take a moment to go.
fn leaves_nothing(full: u32, mut round: impl FnMut()) {
    let rounds = if common::is_soak() { full } else { full / 10 };
    (0..WARM_UP).for_each(|_| round());
    sleep(Duration::from_millis(200));
    let before = Held::now();
    (0..rounds).for_each(|_| round());
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let after = Held::now();
        if after.is_no_more_than(&before) {
            return;
        }
        assert!(
            Instant::now() < until,
            "after {rounds} rounds there are {after:?}, and there were {before:?}"
        );
        sleep(Duration::from_millis(50));
    }
}

fn reduce(wire: Wire) {
    each_communicator(2, wire, CommunicatorOptions::default(), |mut comm| {
        let mut data = vec![1.5_f32; 100];
        comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
        assert!(data.iter().all(|sum| *sum == 3.0));
        comm.close(long()).unwrap();
    });
}

/// By links that each communicator makes, in two steps, and is dropped with or closes.
fn exchange(wire: Wire) {
    each_communicator(3, wire, CommunicatorOptions::default(), |mut comm| {
        let mut data = vec![comm.rank(); 3 * 3000];
        comm.scatter(&mut data, 1, long()).unwrap();
        comm.all_to_all(&mut data, long()).unwrap();
        if comm.rank() > 0 {
            comm.close(long()).unwrap();
        }
    });
}

#[test]
fn communicators_leave_nothing_behind() {
    for wire in WIRES {
        leaves_nothing(1000, || reduce(wire));
        leaves_nothing(200, || exchange(wire));
    }
}
