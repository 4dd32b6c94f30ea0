//! Links of several lanes, on a device or on several: every element, whatever becomes of a lane or of a device.

#[path = "../common/mod.rs"]
mod common;
mod devices;
mod dying;
mod parts;
#[path = "../world/mod.rs"]
mod world;

use common::long;
use devices::{Devices, each_over};
use proptest::prelude::*;
use rdma_collective::collective::{Communicator, CommunicatorError, CommunicatorOptions, ReduceOp};
use rdma_collective::engine::{Engine, EngineOptions, SetupError};
use rdma_core::{Access, Device, Memory, SoftOptions, Wire};
use world::{each_communicator, each_rank, each_rank_over};

/// A call: the collective, the elements of a part, and the root.
#[derive(Debug, Clone, Copy)]
struct Call {
    kind: u8,
    count: usize,
    root: u32,
}

/// The element at index `at` of `rank`.
fn element(rank: u32, at: usize) -> i32 {
    at as i32 * 31 + rank as i32 * 1_000_003
}

fn input(rank: u32, len: usize) -> Vec<i32> {
    (0..len).map(|at| element(rank, at)).collect()
}

/// The sum of all ranks' elements at that index.
fn sum(ranks: u32, at: usize) -> i32 {
    (0..ranks).map(|rank| element(rank, at)).sum()
}

/// How many kinds of them there are.
const KINDS: u8 = 21;

impl Call {
    /// Makes it, and says whether every element of the output is what it must be.
    fn is_right(self, comm: &mut Communicator) -> bool {
        if self.kind < 8 { self.reduces_or_spreads(comm) } else { parts::is_right(self, comm) }
    }

    fn reduces_or_spreads(self, comm: &mut Communicator) -> bool {
        let (rank, ranks) = (comm.rank(), comm.size());
        let Self { kind, count, root } = self;
        let (root, whole) = (root % ranks, count * ranks as usize);
        let own = rank as usize * count..(rank as usize + 1) * count;
        let mut data = input(rank, count);
        let mut all = input(rank, whole);
        let op = ReduceOp::Sum;
        let is_sum = |data: &[i32], first: usize| {
            data.iter().enumerate().all(|(at, value)| *value == sum(ranks, first + at))
        };
        let gathered: Vec<i32> = (0..ranks).flat_map(|rank| input(rank, count)).collect();
        match kind {
            0 => {
                comm.all_reduce(&mut data, op, long()).unwrap();
                is_sum(&data, 0)
            }
            1 => {
                let mut output = vec![0; count];
                comm.all_reduce_into(&data, &mut output, op, long()).unwrap();
                is_sum(&output, 0) && data == input(rank, count)
            }
            2 => {
                all.fill(0);
                all[own].copy_from_slice(&data);
                comm.all_gather(&mut all, long()).unwrap();
                all == gathered
            }
            3 => {
                comm.all_gather_into(&data, &mut all, long()).unwrap();
                all == gathered
            }
            4 => {
                comm.reduce_scatter(&mut all, op, long()).unwrap();
                let (before, after) = (&all[..own.start], &all[own.end..]);
                let rest = input(rank, whole);
                is_sum(&all[own.clone()], own.start)
                    && before == &rest[..own.start]
                    && after == &rest[own.end..]
            }
            5 => {
                comm.reduce_scatter_into(&all, &mut data, op, long()).unwrap();
                is_sum(&data, own.start)
            }
            6 => {
                comm.broadcast(&mut data, root, long()).unwrap();
                data == input(root, count)
            }
            _ => {
                comm.reduce(&mut data, op, root, long()).unwrap();
                if rank == root { is_sum(&data, 0) } else { data == input(rank, count) }
            }
        }
    }
}

/// Options with which ranks of one host use links, too.
fn of(lanes: u8) -> CommunicatorOptions {
    let algorithms = "ring,tree,pairs,bruck".parse().unwrap();
    CommunicatorOptions { lanes, algorithms, ..CommunicatorOptions::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_element_is_right_over_any_number_of_lanes_and_devices(
        ranks in 1_u32..5,
        (devices, lanes) in (1_usize..5).prop_flat_map(|devices| (Just(devices), 1..=8 / devices as u8)),
        slots in 1_u16..10,
        slot_bytes in prop::sample::select(vec![64_usize, 4096, 256 * 1024]),
        wire in prop::sample::select(&[Wire::Local, Wire::Tcp][..]),
        calls in prop::collection::vec((0..KINDS, 0_usize..3000, 0_u32..4), 1..8),
    ) {
        let calls: Vec<_> =
            calls.into_iter().map(|(kind, count, root)| Call { kind, count, root }).collect();
        let options = CommunicatorOptions { slots, slot_bytes, ..of(lanes) };
        let shared = calls.clone();
        let devices = Devices { options, ..Devices::new(ranks, devices, wire) };
        let wrong = each_over(devices, move |mut comm| {
            let wrong = shared.iter().position(|call| !call.is_right(&mut comm));
            comm.close(long()).unwrap();
            wrong
        });
        for (rank, wrong) in wrong.iter().enumerate() {
            prop_assert!(wrong.is_none(), "rank {} of {:?}", rank, wrong.map(|wrong| calls[wrong]));
        }
    }
}

#[test]
fn large_ones_of_every_kind_go_over_several_lanes() {
    for devices in [1, 2] {
        let devices = Devices { options: of(4 / devices as u8), ..Devices::new(3, devices, Wire::Tcp) };
        each_over(devices, |mut comm| {
            for kind in 0..KINDS {
                let call = Call { kind, count: 700_001, root: 1 };
                assert!(call.is_right(&mut comm), "{call:?}");
            }
            comm.close(long()).unwrap();
        });
    }
}

#[test]
fn registered_memory_and_sends_go_over_several_lanes() {
    each_communicator(2, Wire::Tcp, of(3), |mut comm| {
        let (rank, count) = (comm.rank(), 1_000_003);
        comm.connect(long()).unwrap();
        for _ in 0..3 {
            let mut tensor = comm.alloc::<i32>(count).unwrap();
            tensor.copy_from_slice(&input(rank, count));
            let pending = comm.start_all_reduce(tensor, ReduceOp::Sum, long()).unwrap();
            let sums = pending.wait(long()).unwrap().to_vec();
            assert!(sums.iter().enumerate().all(|(at, value)| *value == sum(2, at)));
            let mut received = vec![0_i32; count];
            if rank == 0 {
                comm.send(&sums, 1, long()).unwrap();
                comm.recv(&mut received, 1, long()).unwrap();
            } else {
                comm.recv(&mut received, 0, long()).unwrap();
                comm.send(&sums, 0, long()).unwrap();
            }
            assert!(received == sums);
        }
        comm.close(long()).unwrap();
    });
}

#[test]
fn a_rank_with_another_number_of_lanes_is_named() {
    let errors = each_rank(2, Wire::Local, |mut rank| {
        let options = of(1 + rank.rank as u8);
        Communicator::new(&rank.engine, &mut rank.store, options, long()).unwrap_err().to_string()
    });
    for (error, [ours, other]) in
        errors.iter().zip([["lanes is 1", "2 on rank 1"], ["lanes is 2", "1 on rank 0"]])
    {
        assert!(error.contains(ours) && error.contains(other), "{error}");
    }
}

#[test]
fn a_rank_with_another_number_of_devices_is_named() {
    let devices = |rank: u32| {
        let one = |number| (devices::soft(rank, number, Wire::Local, None), EngineOptions::default());
        (0..=rank as usize).map(one).collect()
    };
    let errors = each_rank_over(2, devices, |mut rank| {
        Communicator::new(&rank.engine, &mut rank.store, of(1), long()).unwrap_err().to_string()
    });
    assert!(errors[0].contains("lanes is 1") && errors[0].contains("2 on rank 1"), "{errors:?}");
    assert!(errors[1].contains("lanes is 2") && errors[1].contains("1 on rank 0"), "{errors:?}");
}

#[test]
fn an_engine_without_a_device_or_with_too_many_is_refused() {
    for count in [0, 9] {
        let one = |number| (devices::soft(0, number, Wire::Local, None), EngineOptions::default());
        let error = Engine::over(&(0..count).map(one).collect::<Vec<_>>()).unwrap_err();
        assert!(matches!(error, SetupError::Devices { max: 8, .. }), "{error}");
        assert!(error.to_string().contains(&count.to_string()), "{error}");
    }
}

#[test]
fn memory_that_one_of_the_devices_refuses_comes_back() {
    let narrow = SoftOptions { max_mr_size: 1 << 16, ..SoftOptions::default() };
    let devices = [SoftOptions::default(), narrow].map(|options| Device::soft(options).open().unwrap());
    let engine = Engine::over(&devices.map(|context| (context, EngineOptions::default()))).unwrap();
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let refused = engine.register(Memory::adopt(vec![7_u8; 1 << 17]), rights).unwrap_err();
    assert!(refused.error.to_string().contains("max_mr_size"), "{}", refused.error);
    assert_eq!(refused.object.into_owner::<Vec<u8>>().unwrap(), vec![7; 1 << 17]);
    let region = engine.register(Memory::adopt(vec![8_u8; 1 << 16]), rights).unwrap();
    assert_eq!(region.deregister().unwrap().into_owner::<Vec<u8>>().unwrap(), vec![8; 1 << 16]);
}

#[test]
fn no_lanes_and_too_many_are_refused() {
    for lanes in [0, 9, 255] {
        let errors = each_rank(1, Wire::Local, move |mut rank| {
            Communicator::new(&rank.engine, &mut rank.store, of(lanes), long()).unwrap_err()
        });
        assert!(matches!(errors[0], CommunicatorError::Lanes { count, max: 8 } if count == lanes));
    }
}
