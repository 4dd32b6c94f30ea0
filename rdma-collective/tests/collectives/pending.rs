//! Operations as handles: waited for, polled, awaited, dropped and forgotten, on one engine and on several.

use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{WIRES, block_on, long};
use crate::world::{Rank, each_communicator, each_rank, each_rank_on};
use proptest::prelude::*;
use rdma_collective::collective::CollectiveError;
use rdma_collective::collective::{Communicator, CommunicatorOptions, WaitError};
use rdma_collective::collective::{DataType, ReduceOp, Tensor};
use rdma_collective::engine::{Driver, EngineOptions};
use rdma_core::{Access, Context as Device, Deadline, Memory, SoftOptions, Wire};

/// Small whole numbers, so that every sum is exact.
fn element(rank: u32, index: usize) -> f32 {
    ((index as u32).wrapping_mul(2_654_435_761).rotate_left(7) % 61 + rank) as f32
}

fn tensor(comm: &Communicator, count: usize) -> Tensor<f32> {
    let mut tensor = comm.alloc(count).unwrap();
    tensor.iter_mut().enumerate().for_each(|(index, at)| *at = element(comm.rank(), index));
    tensor
}

fn is_summed(ranks: u32, tensor: &[f32]) -> bool {
    let sum = |index| (0..ranks).map(|rank| element(rank, index)).sum::<f32>();
    tensor.iter().enumerate().all(|(index, found)| *found == sum(index))
}

fn start(comm: &mut Communicator, tensor: Tensor<f32>) -> rdma_collective::collective::Pending<Tensor<f32>> {
    comm.start_all_reduce(tensor, ReduceOp::Sum, long()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    /// Some ranks have tensors, others slices, in and out of place, several operations at once.
    #[test]
    fn tensors_give_what_slices_give(
        ranks in 1_u32..6,
        wire in prop::sample::select(&WIRES),
        slots in 1_u16..9,
        counts in prop::collection::vec(prop_oneof![0_usize..40, 1000_usize..9000, 100_000_usize..300_000], 1..4),
        how in any::<u64>(),
    ) {
        let options = CommunicatorOptions { slots, ..CommunicatorOptions::default() };
        let right = each_communicator(ranks, wire, options, move |mut comm| {
            let ranks = comm.size();
            let mut right = true;
            let mut pending = Vec::new();
            let mut apart = Vec::new();
            for (round, &count) in counts.iter().enumerate() {
                let own = tensor(&comm, count);
                match how.rotate_right(2 * (comm.rank() + 7 * round as u32)) % 4 {
                    0 => {
                        let mut slice = own.to_vec();
                        comm.all_reduce(&mut slice, ReduceOp::Sum, long()).unwrap();
                        right &= is_summed(ranks, &slice);
                    }
                    1 => {
                        let output = comm.alloc(count).unwrap();
                        let started = comm.start_all_reduce_into(own, output, ReduceOp::Sum, long());
                        apart.push(started.unwrap());
                    }
                    _ => pending.push(start(&mut comm, own)),
                }
            }
            for pending in pending {
                right &= is_summed(ranks, &pending.wait(long()).unwrap());
            }
            for pending in apart {
                let (input, output) = pending.wait(long()).unwrap();
                let kept = input.iter().enumerate().all(|(index, found)| *found == element(comm.rank(), index));
                right &= kept && is_summed(ranks, &output);
            }
            comm.close(long()).unwrap();
            right
        });
        prop_assert!(right.iter().all(|right| *right));
    }
}

#[test]
fn a_range_of_a_region_is_reduced_in_its_place_and_nothing_else() {
    for wire in WIRES {
        each_communicator(3, wire, CommunicatorOptions::default(), |mut comm| {
            let (count, before) = (50_001, 1000);
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            let memory = Memory::allocate(300_000).unwrap();
            let region = comm.engine().register(memory, access).unwrap();
            let own: Vec<u8> =
                (0..count).flat_map(|index| element(comm.rank(), index).to_ne_bytes()).collect();
            region.copy_in(before, &own).unwrap();
            let range = before..before + own.len();
            let mut reduce =
                |range| comm.start_all_reduce_region(&region, range, DataType::F32, ReduceOp::Sum, long());
            reduce(range.clone()).unwrap().wait(long()).unwrap();
            let beyond = reduce(region.len() - 4..region.len() + 4).unwrap_err();
            assert!(matches!(beyond, CollectiveError::Range { len: 300_000, .. }), "{beyond}");
            let mut bytes = vec![0; region.len()];
            region.copy_out(0, &mut bytes).unwrap();
            let sums: Vec<f32> = bytes[range.clone()]
                .chunks(4)
                .map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap()))
                .collect();
            assert!(is_summed(3, &sums));
            assert!(bytes[..range.start].iter().chain(&bytes[range.end..]).all(|byte| *byte == 0));
            // The region has no other user any more.
            region.deregister().unwrap();
        });
    }
}

#[test]
fn a_tensor_is_used_again_and_again() {
    each_communicator(3, Wire::Tcp, CommunicatorOptions::default(), |mut comm| {
        let mut tensor = comm.alloc::<f32>(100_000).unwrap();
        for round in 0..20 {
            assert!(tensor.select(1000 * round..100_000 - 4000 * round));
            tensor.fill(round as f32);
            tensor = start(&mut comm, tensor).wait(long()).unwrap();
            assert!(tensor.iter().all(|sum| *sum == 3.0 * round as f32));
        }
    });
}

#[test]
fn futures_are_woken_by_the_engines_thread() {
    for wire in WIRES {
        each_communicator(2, wire, CommunicatorOptions::default(), |mut comm| {
            for _ in 0..20 {
                let own = tensor(&comm, 50_000);
                let first = start(&mut comm, own);
                let own = tensor(&comm, 3);
                let second = start(&mut comm, own);
                assert!(is_summed(2, &block_on(second).unwrap()));
                assert!(is_summed(2, &block_on(first).unwrap()));
            }
        });
    }
}

#[test]
fn a_runtime_that_stalls_for_seconds_loses_nothing_and_holds_nobody_up() {
    each_communicator(3, Wire::Tcp, CommunicatorOptions::default(), |mut comm| {
        let own = tensor(&comm, 400_000);
        let mut pending = start(&mut comm, own);
        if comm.rank() == 1 {
            // A runtime that stalls: it polls nothing for longer than the peer timeout.
            thread::sleep(Duration::from_secs(5));
        }
        let begin = Instant::now();
        let tensor = loop {
            match pending.poll() {
                Poll::Ready(tensor) => break tensor.unwrap(),
                Poll::Pending => assert!(begin.elapsed() < Duration::from_secs(4), "it is held up"),
            }
        };
        assert!(is_summed(3, &tensor));
    });
}

#[test]
fn handles_that_are_dropped_or_forgotten_let_their_operations_finish() {
    each_communicator(2, Wire::Tcp, CommunicatorOptions::default(), |mut comm| {
        for round in 0..10 {
            let own = tensor(&comm, 70_000);
            let pending = start(&mut comm, own);
            match (round + comm.rank()) % 3 {
                0 => drop(pending),
                1 => crate::common::forget(pending),
                _ => drop(pending.wait(long()).unwrap()),
            }
        }
        let own = tensor(&comm, 5);
        assert!(is_summed(2, &start(&mut comm, own).wait(long()).unwrap()));
        comm.close(long()).unwrap();
    });
}

#[test]
fn a_wait_that_ends_early_gives_the_handle_back() {
    each_communicator(2, Wire::Local, CommunicatorOptions::default(), |mut comm| {
        if comm.rank() == 1 {
            thread::sleep(Duration::from_millis(100));
        }
        let own = tensor(&comm, 1000);
        let mut pending = start(&mut comm, own);
        let mut early = 0;
        let tensor = loop {
            match pending.wait(Deadline::after(Duration::from_millis(5))) {
                Ok(tensor) => break tensor,
                Err(WaitError::StillPending(still)) => (pending, early) = (still.0, early + 1),
                Err(error) => panic!("{error}"),
            }
        };
        assert!(is_summed(2, &tensor) && (comm.rank() == 1 || early > 0));
    });
}

#[test]
fn an_operation_ends_at_its_own_deadline_though_nobody_waits_meanwhile() {
    let told = each_communicator(2, Wire::Local, CommunicatorOptions::default(), |mut comm| {
        if comm.rank() == 1 {
            thread::sleep(Duration::from_millis(600));
            return None;
        }
        let own = tensor(&comm, 1000);
        let soon = Deadline::after(Duration::from_millis(150));
        let pending = comm.start_all_reduce(own, ReduceOp::Sum, soon).unwrap();
        let queued = comm.start_all_reduce(tensor(&comm, 8), ReduceOp::Sum, long()).unwrap();
        let started = Instant::now();
        let error = block_on(pending).unwrap_err();
        assert!(started.elapsed() < Duration::from_millis(500), "{:?}", started.elapsed());
        let after = block_on(queued).unwrap_err();
        assert!(matches!(after, CollectiveError::Ended { .. }), "{after}");
        let refused =
            comm.start_all_reduce(comm.alloc::<f32>(8).unwrap(), ReduceOp::Sum, long()).unwrap_err();
        assert!(matches!(refused.error, CollectiveError::Ended { .. }) && refused.object.len() == 8);
        Some(error)
    });
    let error = told.into_iter().flatten().next().unwrap();
    assert!(matches!(error, CollectiveError::DeadlineExceeded { rank: 1, .. }), "{error}");
}

#[test]
fn operations_of_two_communicators_interleave_and_those_of_one_do_not() {
    each_rank(2, Wire::Tcp, |mut rank: Rank| {
        let mut first = rank.communicator(CommunicatorOptions::default());
        let other = CommunicatorOptions { name: "other".to_owned(), ..CommunicatorOptions::default() };
        let mut second = rank.communicator(other);
        // Each rank begins with another one: if they waited for each other, nothing would end.
        let (own, others) = (tensor(&first, 200_000), tensor(&second, 100_000));
        let (one, two) = if rank.rank == 0 {
            (start(&mut first, own), start(&mut second, others))
        } else {
            let two = start(&mut second, others);
            (start(&mut first, own), two)
        };
        if rank.rank == 0 {
            assert!(is_summed(2, &one.wait(long()).unwrap()) && is_summed(2, &two.wait(long()).unwrap()));
        } else {
            assert!(is_summed(2, &two.wait(long()).unwrap()) && is_summed(2, &one.wait(long()).unwrap()));
        }
    });
}

#[test]
fn a_callers_loop_drives_without_a_thread() {
    let device = |rank: u32| -> Device {
        let options = SoftOptions { name: format!("soft{rank}"), wire: Wire::Tcp, ..SoftOptions::default() };
        rdma_core::Device::soft(options).open().unwrap()
    };
    let options = EngineOptions { driver: Driver::Caller, ..EngineOptions::default() };
    each_rank_on(2, options, device, |mut rank: Rank| {
        let mut comm = rank.communicator(CommunicatorOptions::default());
        let own = tensor(&comm, 300_000);
        let mut pending = start(&mut comm, own);
        let until = Instant::now() + Duration::from_secs(30);
        let tensor = loop {
            rank.engine.drive(Instant::now(), 16).unwrap();
            match pending.poll() {
                Poll::Ready(tensor) => break tensor.unwrap(),
                Poll::Pending => assert!(Instant::now() < until, "it does not end"),
            }
        };
        assert!(is_summed(2, &tensor));
    });
}

#[test]
fn tensors_of_another_engine_and_operations_beyond_the_bound_come_back() {
    each_rank(1, Wire::Local, |mut rank: Rank| {
        let mut comm = rank.communicator(CommunicatorOptions::default());
        let foreign = each_rank(1, Wire::Local, |mut stranger: Rank| {
            stranger.communicator(CommunicatorOptions::default()).alloc::<f32>(4).unwrap()
        });
        let foreign = foreign.into_iter().next().unwrap();
        let refused = comm.start_all_reduce(foreign, ReduceOp::Sum, long()).unwrap_err();
        assert!(matches!(refused.error, CollectiveError::ForeignMemory), "{refused}");
        assert_eq!(refused.object.len(), 4);
        let (short, longer) = (comm.alloc::<f32>(3).unwrap(), comm.alloc::<f32>(4).unwrap());
        let refused = comm.start_all_reduce_into(short, longer, ReduceOp::Sum, long()).unwrap_err();
        assert!(
            matches!(refused.error, CollectiveError::LengthsDiffer { input: 12, output: 16 }),
            "{refused}"
        );
        assert_eq!((refused.object.0.len(), refused.object.1.len()), (3, 4));
    });
}

#[test]
fn a_queue_that_is_full_gives_the_tensor_back() {
    each_communicator(2, Wire::Local, CommunicatorOptions::default(), |mut comm| {
        if comm.rank() == 1 {
            // Until then none of the other rank's can end.
            thread::sleep(Duration::from_millis(500));
        }
        if comm.rank() == 1 {
            for _ in 0..64 {
                let tensor = comm.alloc::<f32>(1).unwrap();
                comm.start_all_reduce(tensor, ReduceOp::Sum, long()).unwrap().wait(long()).unwrap();
            }
            return;
        }
        let mut one = || comm.start_all_reduce(comm.alloc::<f32>(1).unwrap(), ReduceOp::Sum, long());
        let pending: Vec<_> = (0..64).map(|_| one().unwrap()).collect();
        match one() {
            Err(refused) => {
                assert!(matches!(refused.error, CollectiveError::TooManyOperations { max: 64 }), "{refused}");
                assert_eq!(refused.object.len(), 1);
            }
            Ok(_) => panic!("more than the bound"),
        }
        for pending in pending {
            pending.wait(long()).unwrap();
        }
    });
}
