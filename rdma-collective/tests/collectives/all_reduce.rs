//! All-reduce over the software device: compared with an oracle, and with ranks that fail or misbehave.

use std::time::{Duration, Instant};

use crate::common::{WIRES, long};
use crate::world::{each_communicator, each_rank, each_rank_on, each_rank_with};
use proptest::prelude::*;
use rdma_collective::collective::{AbortReason, CollectiveError};
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_collective::collective::{DataType, ReduceOp, f16};
use rdma_collective::engine::EngineOptions;
use rdma_core::fault::{Fault, FaultPlan, Rule};
use rdma_core::{AckTimeout, Context, Deadline, Device, PeerAccess, RetryOptions, SoftOptions, Wire};

/// The elements of a rank: small whole numbers, so that every sum is exact in every type.
fn element(seed: u64, rank: u32, index: usize) -> f32 {
    let mixed = (seed ^ u64::from(rank) << 32 ^ index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    f32::from((mixed >> 58) as u8) - 31.0
}

fn bytes(data_type: DataType, values: impl Iterator<Item = f32>) -> Vec<u8> {
    match data_type {
        DataType::F32 => values.flat_map(f32::to_ne_bytes).collect(),
        _ => values.flat_map(|value| f16::from_f32(value).to_ne_bytes()).collect(),
    }
}

fn input(data_type: DataType, count: usize, seed: u64, rank: u32) -> Vec<u8> {
    bytes(data_type, (0..count).map(|index| element(seed, rank, index)))
}

/// The elements that every rank must end with.
fn oracle(data_type: DataType, count: usize, seed: u64, ranks: u32) -> Vec<u8> {
    bytes(data_type, (0..count).map(|index| (0..ranks).map(|rank| element(seed, rank, index)).sum()))
}

#[derive(Debug, Clone, Copy)]
struct Call {
    count: usize,
    half: bool,
    in_place: bool,
    seed: u64,
}

impl Call {
    fn data_type(self) -> DataType {
        if self.half { DataType::F16 } else { DataType::F32 }
    }

    /// Whether the rank's result is right, with canaries around it untouched.
    fn run(self, comm: &mut Communicator) -> bool {
        const CANARY: usize = 32;
        let (data_type, rank, ranks) = (self.data_type(), comm.rank(), comm.size());
        let input = input(data_type, self.count, self.seed, rank);
        let expected = oracle(data_type, self.count, self.seed, ranks);
        let mut buffer = vec![0xa5; input.len() + 2 * CANARY];
        let output = &mut buffer[CANARY..CANARY + input.len()];
        if self.in_place {
            output.copy_from_slice(&input);
            comm.all_reduce_bytes(output, data_type, ReduceOp::Sum, long()).unwrap();
        } else {
            comm.all_reduce_bytes_into(&input, output, data_type, ReduceOp::Sum, long()).unwrap();
        }
        *output == expected[..]
            && buffer[..CANARY].iter().chain(&buffer[CANARY + input.len()..]).all(|byte| *byte == 0xa5)
    }
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let counts = prop_oneof![Just(0_usize), 1..40_usize, 1..3000_usize, 100_000..300_000_usize];
    let call = (counts, any::<bool>(), any::<bool>(), any::<u64>())
        .prop_map(|(count, half, in_place, seed)| Call { count, half, in_place, seed });
    prop::collection::vec(call, 1..5)
}

fn options() -> impl Strategy<Value = CommunicatorOptions> {
    let small = (1_u16..6, 1_usize..200, 0_usize..64).prop_map(|(slots, elements, chunk_bytes_min)| {
        CommunicatorOptions {
            slots,
            slot_bytes: elements * 4,
            chunk_bytes_min,
            ..CommunicatorOptions::default()
        }
    });
    prop_oneof![3 => Just(CommunicatorOptions::default()), 1 => small]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_reduce_is_the_oracles_on_every_rank(
        ranks in 1_u32..9,
        wire in prop::sample::select(&WIRES),
        options in options(),
        mut calls in calls(),
    ) {
        if options.slot_bytes < 1024 {
            // Slots this small take a message for every few elements.
            calls.iter_mut().for_each(|call| call.count %= 3000);
        }
        let expected = calls.len();
        let right = each_communicator(ranks, wire, options, move |mut comm| {
            calls.iter().filter(|call| call.run(&mut comm)).count()
        });
        prop_assert!(right.iter().all(|count| *count == expected), "{right:?} of {expected} are right");
    }
}

#[test]
fn typed_slices_are_reduced_in_and_out_of_place() {
    for wire in WIRES {
        each_communicator(3, wire, CommunicatorOptions::default(), |mut comm| {
            let own = f32::from(comm.rank() as u8);
            let mut data = vec![own; 1000];
            comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
            assert_eq!(data, vec![3.0; 1000]);
            let (input, mut output) = (vec![f16::from_f32(own + 0.5); 77], vec![f16::ZERO; 77]);
            comm.all_reduce_into(&input, &mut output, ReduceOp::Sum, long()).unwrap();
            assert_eq!(output, vec![f16::from_f32(4.5); 77]);
            comm.close(long()).unwrap();
        });
    }
}

#[test]
fn a_rank_knows_its_neighbours_and_what_all_ranks_said() {
    let told = each_communicator(4, Wire::Local, CommunicatorOptions::default(), |comm| {
        let neighbours: Vec<_> = comm.neighbours().collect();
        let devices: Vec<_> = comm.ranks().iter().map(|rank| rank.device.clone()).collect();
        (neighbours, devices, comm.ranks().iter().all(|rank| rank.soft && rank.pid == std::process::id()))
    });
    assert_eq!(told[0].0, [(3, PeerAccess::Mapped), (1, PeerAccess::Mapped)]);
    assert_eq!(told[3].0, [(2, PeerAccess::Mapped), (0, PeerAccess::Mapped)]);
    assert!(told.iter().all(|(_, devices, all)| *all && *devices == ["soft0", "soft1", "soft2", "soft3"]));
}

#[test]
fn a_rank_that_never_comes_is_named_at_the_deadline_and_the_communicator_ends() {
    let outcomes = each_communicator(3, Wire::Local, CommunicatorOptions::default(), |mut comm| {
        if comm.rank() == 2 {
            // This rank stays alive and never calls.
            std::thread::sleep(Duration::from_millis(1500));
            return None;
        }
        let started = Instant::now();
        let mut data = vec![1.0_f32; 1 << 20];
        let error = comm
            .all_reduce(&mut data, ReduceOp::Sum, Deadline::after(Duration::from_millis(500)))
            .unwrap_err();
        // The scheduler decides when the other ranks begin, so they may hear of the failure before.
        let own = matches!(error, CollectiveError::DeadlineExceeded { .. });
        assert!(!own || started.elapsed() >= Duration::from_millis(499), "{error}");
        let again = comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap_err();
        assert!(matches!(again, CollectiveError::Ended { .. }), "{again}");
        Some(error)
    });
    match outcomes[0].as_ref().unwrap() {
        CollectiveError::DeadlineExceeded { rank: 2, interrupted, .. } => {
            assert!(interrupted.bytes_outstanding > 0)
        }
        CollectiveError::Aborted { culprit: 2, reason: AbortReason::DeadlineExceeded, .. } => {}
        other => panic!("{other}"),
    }
}

/// Devices that give up within some tens of milliseconds, each with a fault plan.
fn faulty(
    wire: Wire,
    faults: impl Fn(u32) -> FaultPlan + Send + Sync + 'static,
) -> (EngineOptions, impl Fn(u32) -> Context + Send + Sync + 'static) {
    let retry = RetryOptions { ack_timeout: AckTimeout::new(14), ..RetryOptions::default() };
    let heartbeat = Duration::from_millis(20);
    let device = move |rank| {
        let options = SoftOptions {
            name: format!("soft{rank}"),
            wire,
            faults: Some(faults(rank)),
            ..SoftOptions::default()
        };
        Device::soft(options).open().unwrap()
    };
    (EngineOptions { retry: Some(retry), heartbeat, ..EngineOptions::default() }, device)
}

/// Asserts that the others' second operation fails because of rank 2 of four, which ends after its first as `end` says.
fn assert_named(wire: Wire, end: impl Fn(Communicator, &FaultPlan) + Send + Sync + 'static) {
    let plans: [FaultPlan; 4] = std::array::from_fn(|rank| FaultPlan::seeded(rank as u64));
    let own = plans.clone();
    let (options, device) = faulty(wire, move |rank| plans[rank as usize].clone());
    let patient = Some(RetryOptions { ack_timeout: AckTimeout::new(20), ..RetryOptions::default() });
    let options = move |rank| match rank {
        // A rank that is cut off would find its neighbour lost, and report that first.
        2 => EngineOptions { retry: patient.clone(), ..options.clone() },
        _ => options.clone(),
    };
    let outcomes = each_rank_with(4, options, device, move |mut rank| {
        let mut comm = rank.communicator(CommunicatorOptions::default());
        let mut data = vec![1.0_f32; 1 << 16];
        comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
        if comm.rank() == 2 {
            end(comm, &own[2]);
            return None;
        }
        Some(comm.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap_err())
    });
    for (rank, error) in outcomes.iter().enumerate() {
        match error {
            None => assert_eq!(rank, 2),
            Some(
                CollectiveError::PeerFailed { rank: culprit, .. } | CollectiveError::Aborted { culprit, .. },
            ) => assert_eq!(*culprit, 2, "rank {rank}: {}", error.as_ref().unwrap()),
            Some(other) => panic!("rank {rank}: {other}"),
        }
    }
}

#[test]
fn a_rank_that_leaves_early_is_named_on_all_others() {
    for wire in WIRES {
        assert_named(wire, |comm, _| comm.close(long()).unwrap());
    }
}

#[test]
fn a_rank_that_dies_is_named_on_all_others_long_before_the_deadline() {
    for wire in WIRES {
        assert_named(wire, |comm, faults| {
            faults.kill();
            // Rank 2 says no goodbye, and keeps its memory while the others find out.
            std::thread::sleep(Duration::from_millis(1500));
            drop(comm);
        });
    }
}

#[test]
fn lost_late_and_reordered_messages_change_nothing() {
    for wire in WIRES {
        let plan = |rank| {
            FaultPlan::seeded(u64::from(rank))
                .with(Rule::new(Fault::Drop).with_probability(0.02))
                .with(Rule::new(Fault::Reorder).with_probability(0.02))
                .with(Rule::new(Fault::Delay(Duration::from_millis(2))).with_probability(0.02))
        };
        let (options, device) = faulty(wire, plan);
        let right = each_rank_on(3, options, device, |mut rank| {
            let mut comm = rank.communicator(CommunicatorOptions::default());
            let call = |seed| Call { count: 60_000, half: seed % 2 == 0, in_place: seed % 3 == 0, seed };
            (0..10).filter(|seed| call(*seed).run(&mut comm)).count()
        });
        assert_eq!(right, [10; 3]);
    }
}

#[test]
fn a_byte_that_is_flipped_on_its_way_is_in_the_result() {
    // The tenth payload that rank 1 receives is in the middle of the data, although some payloads are control messages.
    let plan = |rank| match rank {
        1 => FaultPlan::seeded(1).with(Rule::new(Fault::Corrupt).nth(10)),
        _ => FaultPlan::seeded(0),
    };
    let (_, device) = faulty(Wire::Tcp, plan);
    // No rank sends a wait report or a heartbeat meanwhile, however slow the machine is.
    let (heartbeat, peer_timeout) = (Duration::from_secs(30), Duration::from_secs(60));
    let options = EngineOptions { heartbeat, peer_timeout, ..EngineOptions::default() };
    let right = each_rank_on(2, options, device, |mut rank| {
        let mut comm = rank.communicator(CommunicatorOptions::default());
        Call { count: 1 << 20, half: false, in_place: false, seed: 9 }.run(&mut comm)
    });
    assert!(!right[1], "the oracle finds it");
}

#[test]
fn buffers_that_do_not_fit_are_refused_and_nothing_is_lost() {
    each_communicator(2, Wire::Local, CommunicatorOptions::default(), |mut comm| {
        let sum = ReduceOp::Sum;
        let error = comm.all_reduce_into(&[1.0_f32; 3], &mut [0.0; 4], sum, long()).unwrap_err();
        assert!(matches!(error, CollectiveError::LengthsDiffer { input: 12, output: 16 }), "{error}");
        let error = comm.all_reduce_bytes(&mut [0; 5], DataType::F32, sum, long()).unwrap_err();
        assert!(matches!(error, CollectiveError::Reduce(_)), "{error}");
        let mut data = [2.0_f32; 3];
        comm.all_reduce(&mut data, sum, long()).unwrap();
        assert_eq!(data, [4.0; 3]);
    });
}

#[test]
fn two_communicators_share_an_engine() {
    each_rank(3, Wire::Local, |mut rank| {
        let mut first = rank.communicator(CommunicatorOptions::default());
        let mut second = rank.communicator(CommunicatorOptions {
            name: "second".to_owned(),
            ..CommunicatorOptions::default()
        });
        for round in 0..5 {
            let (mut one, mut two) = (vec![1.0_f32; 5000], vec![f16::ONE; 70]);
            if round % 2 == 0 {
                first.all_reduce(&mut one, ReduceOp::Sum, long()).unwrap();
                second.all_reduce(&mut two, ReduceOp::Sum, long()).unwrap();
            } else {
                second.all_reduce(&mut two, ReduceOp::Sum, long()).unwrap();
                first.all_reduce(&mut one, ReduceOp::Sum, long()).unwrap();
            }
            assert!(one.iter().all(|sum| *sum == 3.0) && two.iter().all(|sum| *sum == f16::from_f32(3.0)));
        }
        second.close(long()).unwrap();
    });
}

#[test]
fn closing_drains_whatever_is_due_to_the_neighbours_then() {
    for operations in 40..70 {
        let closed = each_communicator(3, Wire::Tcp, CommunicatorOptions::default(), move |mut comm| {
            for count in 0..operations {
                comm.all_reduce(&mut vec![1.0_f32; count % 14], ReduceOp::Sum, long()).unwrap();
            }
            comm.close(long())
        });
        assert!(closed.iter().all(Result::is_ok), "after {operations} operations: {closed:?}");
    }
}

#[test]
fn options_that_are_not_alike_are_an_error_on_all_ranks() {
    let errors = each_rank(3, Wire::Local, |mut rank| {
        let slots = if rank.rank == 1 { 4 } else { 8 };
        let options = CommunicatorOptions { slots, ..CommunicatorOptions::default() };
        let made = Communicator::new(&rank.engine, &mut rank.store, options, long());
        made.unwrap_err().to_string()
    });
    assert!(errors.iter().all(|error| error.contains("slots") && error.contains("rank")), "{errors:?}");
}
