//! Ranks that have one core together, as a container's set of them may be: they are done in time all the same.

mod common;
mod world;

use common::{WIRES, long};
use rdma_collective::collective::CommunicatorOptions;
use rdma_collective::collective::ReduceOp;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use world::each_communicator;

/// Threads that this thread starts from now on run on the first core that it may use.
fn take_one_core() {
    let all = sched_getaffinity(None).unwrap();
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|core| all.is_set(*core)).unwrap());
    sched_setaffinity(None, &one).unwrap();
    assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
}

#[test]
fn ranks_on_one_core_are_done_in_time() {
    take_one_core();
    for (wire, ranks) in WIRES.into_iter().flat_map(|wire| [(wire, 2), (wire, 5)]) {
        each_communicator(ranks, wire, CommunicatorOptions::default(), move |mut comm| {
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
            for count in [1, 1000, 20_000, 300_000] {
                let mut slice = vec![comm.rank() as i32; count];
                let mut tensor = comm.alloc(count).unwrap();
                tensor.copy_from_slice(&slice);
                for _ in 0..5 {
                    comm.all_reduce(&mut slice, ReduceOp::Max, long()).unwrap();
                    let pending = comm.start_all_reduce(tensor, ReduceOp::Max, long()).unwrap();
                    tensor = pending.wait(long()).unwrap();
                    comm.barrier(long()).unwrap();
                }
                let last = ranks as i32 - 1;
                assert!(slice.iter().chain(tensor.iter()).all(|value| *value == last));
            }
            comm.close(long()).unwrap();
        });
    }
}
