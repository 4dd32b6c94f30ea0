//! The zero-copy protocol: large operations on memory of the library give the same bits as the pipelined protocol gives
//! for borrowed slices.

use std::thread::sleep;
use std::time::Duration;

use rdma_collective::collective::CollectiveError;
use rdma_collective::collective::{Communicator, CommunicatorOptions, WaitError};
use rdma_collective::collective::{DataType, Element, ReduceOp, Tensor, bf16, f16};
use rdma_core::{Access, Deadline, Memory, Wire};

use crate::common::long;
use crate::world::{each_communicator, each_rank};

const NEAR: [Wire; 2] = [Wire::Local, Wire::Mapped];

/// Finite numbers of many magnitudes, different for each rank and round.
fn bytes<T: Element>(rank: u32, round: u64, count: usize) -> Vec<u8> {
    let mut mixed = u64::from(rank) << 32 ^ round;
    let mut bytes: Vec<u8> = (0..count * size_of::<T>())
        .map(|_| {
            mixed = mixed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (mixed >> 40) as u8
        })
        .collect();
    // Products of very large numbers would be infinite after few steps, and then equal in both orders.
    bytes.iter_mut().skip(size_of::<T>() - 1).step_by(size_of::<T>()).for_each(|high| *high &= 0xbf);
    bytes
}

fn tensor<T: Element>(comm: &Communicator, bytes: &[u8]) -> Tensor<T> {
    let mut tensor = comm.alloc::<T>(bytes.len() / size_of::<T>()).unwrap();
    T::as_bytes_mut(&mut tensor).copy_from_slice(bytes);
    tensor
}

/// Runs the call on slices, on one tensor, on two, and with another choice on each rank.
fn is_as_on_slices<T: Element>(comm: &mut Communicator, op: ReduceOp, count: usize, round: u64) {
    let input = bytes::<T>(comm.rank(), round, count);
    let mut expected = input.clone();
    comm.all_reduce_bytes(&mut expected, T::DATA_TYPE, op, long()).unwrap();
    let own = tensor::<T>(comm, &input);
    let reduced = comm.start_all_reduce(own, op, long()).unwrap().wait(long()).unwrap();
    let what = format!("{count} {} by {op} of {}", T::DATA_TYPE, comm.size());
    assert!(T::as_bytes(&reduced) == expected, "{what} in place");
    for mixed in [false, true] {
        if mixed && comm.rank() % 2 == 1 {
            let mut data = input.clone();
            comm.all_reduce_bytes(&mut data, T::DATA_TYPE, op, long()).unwrap();
            assert!(data == expected, "{what} beside ranks that own theirs");
            continue;
        }
        let (own, output) = (tensor::<T>(comm, &input), comm.alloc::<T>(count).unwrap());
        let pending = comm.start_all_reduce_into(own, output, op, long()).unwrap();
        let (own, output) = pending.wait(long()).unwrap();
        assert!(T::as_bytes(&output) == expected, "{what} out of place");
        assert!(T::as_bytes(&own) == input, "the input of {what} was changed");
    }
}

#[test]
fn bits_are_those_of_the_ring_whatever_the_ranks_types_and_places() {
    for ranks in 1..=8 {
        let wire = NEAR[ranks as usize % 2];
        for reproducible in [false, true] {
            let options = CommunicatorOptions { reproducible, ..CommunicatorOptions::default() };
            each_communicator(ranks, wire, options, move |mut comm| {
                for (round, op) in (0..).zip([ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Prod, ReduceOp::Max]) {
                    is_as_on_slices::<f32>(&mut comm, op, 70_001, round);
                    is_as_on_slices::<bf16>(&mut comm, op, 9_999, round);
                    is_as_on_slices::<i8>(&mut comm, op, 100_003, round);
                }
                is_as_on_slices::<f16>(&mut comm, ReduceOp::Sum, 50_000, 7);
                is_as_on_slices::<f64>(&mut comm, ReduceOp::Avg, 20_000, 7);
                is_as_on_slices::<f32>(&mut comm, ReduceOp::Sum, 1_000_000, 7);
                comm.close(long()).unwrap();
            });
        }
    }
}

#[test]
fn regions_are_used_where_they_lie_and_nothing_around_them() {
    each_rank(3, Wire::Mapped, |mut rank| {
        const COUNT: usize = 40_000;
        let mut comm = rank.communicator(CommunicatorOptions::default());
        let memory = Memory::allocate(4 * COUNT + 300).unwrap();
        let region = rank.engine.register(memory, Access::LOCAL_WRITE).unwrap();
        for round in 1..20_u32 {
            let start = 4 * (round as usize + rank.rank as usize);
            region.copy_in(0, &[0xa5; 4 * COUNT + 300]).unwrap();
            region.copy_in(start, &(round + rank.rank).to_ne_bytes().repeat(COUNT)).unwrap();
            let range = start..start + 4 * COUNT;
            let sum = ReduceOp::Sum;
            comm.start_all_reduce_region(&region, range.clone(), DataType::U32, sum, long())
                .unwrap()
                .wait(long())
                .unwrap();
            let mut bytes = [0; 4 * COUNT + 300];
            region.copy_out(0, &mut bytes).unwrap();
            assert!(bytes[range.clone()] == (3 * round + 3).to_ne_bytes().repeat(COUNT), "round {round}");
            assert!(bytes[..range.start].iter().chain(&bytes[range.end..]).all(|byte| *byte == 0xa5));
        }
        comm.close(long()).unwrap();
        assert!(region.deregister().is_ok(), "no other rank has a right to it");
    });
}

#[test]
fn memory_of_an_operation_that_failed_is_nobody_elses() {
    let errors = each_rank(3, Wire::Mapped, |mut rank| {
        const COUNT: usize = 1_000_000;
        let mut comm = rank.communicator(CommunicatorOptions::default());
        let memory = Memory::allocate(4 * COUNT).unwrap();
        let region = rank.engine.register(memory, Access::LOCAL_WRITE).unwrap();
        let mut reduce = |within| {
            let (range, deadline) = (0..4 * COUNT, Deadline::after(within));
            let sum = ReduceOp::Sum;
            comm.start_all_reduce_region(&region, range, DataType::F32, sum, deadline).unwrap().wait(long())
        };
        reduce(Duration::from_secs(60)).unwrap();
        if rank.rank == 2 {
            sleep(Duration::from_secs(3));
            return None;
        }
        let Err(WaitError::Failed(error)) = reduce(Duration::from_millis(600)) else {
            panic!("it ended well")
        };
        drop(comm);
        assert!(region.deregister().is_ok(), "no other rank has a right to it");
        Some(error)
    });
    for error in errors.into_iter().flatten() {
        match error {
            CollectiveError::DeadlineExceeded { rank: 2, .. }
            | CollectiveError::Aborted { culprit: 2, .. } => {}
            other => panic!("{other}"),
        }
    }
}
