//! A steady all-reduce allocates nothing: not its caller, not the engine's thread, not the device's.

mod common;
mod world;

use std::alloc::System;
use std::sync::{Arc, Barrier};

use common::{WIRES, long};
use rdma_collective::collective::CommunicatorOptions;
use rdma_collective::collective::ReduceOp;
use rdma_collective::engine::EngineOptions;
use rdma_core::{Device, SoftOptions};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use world::{Rank, each_rank_on};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The first one warms up.
const BATCHES: usize = 6;

#[test]
fn a_steady_all_reduce_allocates_nothing() {
    for wire in WIRES {
        let device = move |rank: u32| {
            let options = SoftOptions { name: format!("soft{rank}"), wire, ..SoftOptions::default() };
            Device::soft(options).open().unwrap()
        };
        let together = Arc::new(Barrier::new(2));
        each_rank_on(2, EngineOptions::default(), device, move |mut rank: Rank| {
            let mut comm = rank.communicator(CommunicatorOptions::default());
            let mut slice = vec![1.0_f32; 100_000];
            let mut tensor = Some(comm.alloc::<f32>(100_000).unwrap());
            let mut round = || {
                comm.all_reduce(&mut slice, ReduceOp::Max, long()).unwrap();
                let lent = tensor.take().unwrap();
                tensor =
                    Some(comm.start_all_reduce(lent, ReduceOp::Max, long()).unwrap().wait(long()).unwrap());
            };
            // Queues grow to what is needed, the rarer the later; then nothing more does.
            let mut counts = Vec::with_capacity(BATCHES);
            for _ in 0..BATCHES {
                together.wait();
                let counted = Region::new(ALLOCATOR);
                together.wait();
                (0..200).for_each(|_| round());
                together.wait();
                let change = counted.change();
                together.wait();
                counts.push((change.allocations + change.reallocations, change.bytes_allocated));
            }
            assert!(counts[1..].contains(&(0, 0)), "in batches of 400 operations over {wire:?}: {counts:?}");
            // Four at once, for a queue on each of both threads and ranks, have been seen late.
            assert!(counts[1..].iter().all(|(calls, _)| *calls < 8), "over {wire:?}: {counts:?}");
        });
    }
}
