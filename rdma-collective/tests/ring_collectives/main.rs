//! All collectives but all-reduce over the software device: every bit against the oracle, in every place.
//! All-reduce is in `collectives` and `numerics`.

mod call;
#[path = "../common/mod.rs"]
mod common;
mod failures;
#[path = "../oracle/mod.rs"]
mod oracle;
#[path = "../world/mod.rs"]
mod world;

use call::{CALL, Call, KINDS, PLACES, Place};
use common::{WIRES, long};
use proptest::prelude::*;
use rdma_collective::collective::CollectiveError;
use rdma_collective::collective::CommunicatorOptions;
use rdma_collective::collective::{DataType, ReduceOp, f16};
use rdma_core::Wire;
use world::each_communicator;

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let counts = prop_oneof![Just(0_usize), 1..40_usize, 1..3000_usize, 50_000..100_000_usize];
    let types = prop::sample::select(DataType::ALL);
    let ops = prop::sample::select(ReduceOp::ALL);
    let call = (prop::sample::select(&KINDS), counts, types, ops, 0_u32..8, any::<u64>())
        .prop_map(|(kind, count, data_type, op, root, seed)| Call { kind, count, data_type, op, root, seed });
    prop::collection::vec(call, 1..8)
}

fn options() -> impl Strategy<Value = CommunicatorOptions> {
    let small = (1_u16..6, 1_usize..100, 0_usize..64, any::<bool>()).prop_map(
        |(slots, elements, chunk_bytes_min, reproducible)| CommunicatorOptions {
            slots,
            slot_bytes: elements * 8,
            chunk_bytes_min,
            reproducible,
            ..CommunicatorOptions::default()
        },
    );
    let usual = any::<bool>()
        .prop_map(|reproducible| CommunicatorOptions { reproducible, ..CommunicatorOptions::default() });
    prop_oneof![usual, small]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bits_are_the_oracles_whatever_the_sizes_the_wire_and_the_places(
        ranks in 1_u32..9,
        wire in prop::sample::select(&WIRES),
        mut options in options(),
        mut calls in calls(),
    ) {
        // The oracle reduces in the order of the ring.
        if calls.iter().any(|call| call.depends_on_order()) && !options.reproducible {
            options.algorithms = "^tree".parse().unwrap();
        }
        if options.slot_bytes < 1024 {
            // Slots this small take a message for every few elements.
            calls.iter_mut().for_each(|call| call.count %= 2000);
        }
        let shared = calls.clone();
        let wrong = each_communicator(ranks, wire, options, move |mut comm| {
            let rank = comm.rank();
            let wrong = shared.iter().position(|call| !call.is_right(&mut comm, call.place(rank)));
            comm.close(long()).unwrap();
            wrong
        });
        for (rank, wrong) in wrong.iter().enumerate() {
            prop_assert!(wrong.is_none(), "rank {} of {:?}", rank, wrong.map(|wrong| calls[wrong]));
        }
    }
}

#[test]
fn every_type_operation_and_root_is_the_oracles() {
    // As short messages to all, and around the ring.
    let usual = CommunicatorOptions::default();
    let small = CommunicatorOptions { slots: 3, slot_bytes: 256, chunk_bytes_min: 64, ..usual.clone() };
    for (options, reproducible) in [(&usual, false), (&usual, true), (&small, false), (&small, true)] {
        let options = CommunicatorOptions { reproducible, ..options.clone() };
        each_communicator(3, Wire::Local, options, move |mut comm| {
            let mut seed = 0;
            for &data_type in DataType::ALL {
                for &op in ReduceOp::ALL {
                    for kind in KINDS {
                        seed += 1;
                        let call = Call { kind, count: 150, data_type, op, root: seed as u32 % 3, seed };
                        for place in PLACES {
                            assert!(call.is_right(&mut comm, place), "{call:?} in {place:?}");
                        }
                    }
                }
            }
        });
    }
}

#[test]
fn typed_slices_are_in_and_out_of_place() {
    for wire in WIRES {
        each_communicator(3, wire, CommunicatorOptions::default(), |mut comm| {
            let (rank, own) = (comm.rank() as usize, comm.rank() as i32);
            let mut all = [-1; 6];
            comm.all_gather_into(&[own, own + 10], &mut all, long()).unwrap();
            assert_eq!(all, [0, 10, 1, 11, 2, 12]);
            let mut all = [-1_i32; 3];
            all[rank] = own;
            comm.all_gather(&mut all, long()).unwrap();
            assert_eq!(all, [0, 1, 2]);
            let mut part = [0_i32];
            comm.reduce_scatter_into(&[own, 2 * own, 3 * own], &mut part, ReduceOp::Sum, long()).unwrap();
            assert_eq!(part, [3 * (own + 1)]);
            let mut all = [own, own, own];
            comm.reduce_scatter(&mut all, ReduceOp::Avg, long()).unwrap();
            assert_eq!(all[rank], 1);
            let mut data = [own; 5];
            comm.broadcast(&mut data, 2, long()).unwrap();
            assert_eq!(data, [2; 5]);
            comm.broadcast_into(if own == 1 { &[7_u8; 3] } else { &[] }, &mut [0; 3], 1, long()).unwrap();
            let mut data = [own; 5];
            comm.reduce(&mut data, ReduceOp::Max, 1, long()).unwrap();
            assert_eq!(data, [if own == 1 { 2 } else { own }; 5]);
            let mut output = [f16::ZERO; 2];
            let output = if own == 0 { &mut output[..] } else { &mut [] };
            comm.reduce_into(&[f16::ONE; 2], output, ReduceOp::Sum, 0, long()).unwrap();
            assert!(output.iter().all(|sum| *sum == f16::from_f32(3.0)));
            let mut all = if own == 1 { vec![-1; 6] } else { Vec::new() };
            comm.gather_into(&[own, own + 10], &mut all, 1, long()).unwrap();
            assert!(all.is_empty() || all == [0, 10, 1, 11, 2, 12]);
            let mut all = [7_i32; 3];
            all[rank] = own;
            comm.gather(&mut all, 2, long()).unwrap();
            assert!(own != 2 || all == [0, 1, 2]);
            let mut part = [0_i32; 2];
            let all = if own == 1 { &[0, 1, 2, 3, 4, 5][..] } else { &[] };
            comm.scatter_into(all, &mut part, 1, long()).unwrap();
            assert_eq!(part, [2 * own, 2 * own + 1]);
            let mut all = [own, own + 10, own + 20];
            comm.scatter(&mut all, 0, long()).unwrap();
            assert_eq!(all[rank], 10 * own);
            let mut all = [10 * own, 10 * own + 1, 10 * own + 2];
            comm.all_to_all(&mut all, long()).unwrap();
            assert_eq!(all, [own, 10 + own, 20 + own]);
            let mut turned = [0; 3];
            comm.all_to_all_into(&all, &mut turned, long()).unwrap();
            assert_eq!(turned, [10 * own, 10 * own + 1, 10 * own + 2]);
            comm.close(long()).unwrap();
        });
    }
}

#[test]
fn buffers_and_roots_that_do_not_fit_are_refused_and_nothing_is_lost() {
    each_communicator(2, Wire::Local, CommunicatorOptions::default(), |mut comm| {
        let sum = ReduceOp::Sum;
        let other = 1 - comm.rank();
        let own = comm.rank();
        for error in [
            comm.all_gather(&mut [0_i32; 3], long()).unwrap_err(),
            comm.reduce_scatter(&mut [0_i32; 3], sum, long()).unwrap_err(),
            comm.gather(&mut [0_i32; 3], 0, long()).unwrap_err(),
            comm.scatter(&mut [0_i32; 3], 1, long()).unwrap_err(),
            comm.all_to_all(&mut [0_i32; 3], long()).unwrap_err(),
            comm.all_to_all_into(&[0_i32; 3], &mut [0; 3], long()).unwrap_err(),
        ] {
            assert!(matches!(error, CollectiveError::Indivisible { count: 3, ranks: 2 }), "{error}");
        }
        for error in [
            comm.all_gather_into(&[0_i32; 2], &mut [0; 3], long()).unwrap_err(),
            comm.reduce_scatter_into(&[0_i32; 3], &mut [0; 2], sum, long()).unwrap_err(),
            comm.gather_into(&[0_i32; 2], &mut [0; 3], own, long()).unwrap_err(),
            comm.scatter_into(&[0_i32; 3], &mut [0; 2], own, long()).unwrap_err(),
        ] {
            assert!(
                matches!(error, CollectiveError::PartsDiffer { part: 8, whole: 12, ranks: 2 }),
                "{error}"
            );
        }
        for error in [
            comm.broadcast_into(&[0_i32; 2], &mut [0; 3], own, long()).unwrap_err(),
            comm.reduce_into(&[0_i32; 2], &mut [0; 3], sum, own, long()).unwrap_err(),
            comm.all_to_all_into(&[0_i32; 2], &mut [0; 3], long()).unwrap_err(),
        ] {
            assert!(matches!(error, CollectiveError::LengthsDiffer { input: 8, output: 12 }), "{error}");
        }
        for error in [
            comm.broadcast(&mut [0_i32; 2], 2, long()).unwrap_err(),
            comm.reduce(&mut [0_i32; 2], sum, u32::MAX, long()).unwrap_err(),
            comm.gather(&mut [0_i32; 2], 2, long()).unwrap_err(),
            comm.scatter(&mut [0_i32; 2], 2, long()).unwrap_err(),
        ] {
            assert!(matches!(error, CollectiveError::Schedule(_)), "{error}");
            assert!(error.to_string().contains("is not one of 2"), "{error}");
        }
        for error in [
            comm.all_gather_bytes(&mut [0; 6], DataType::F32, long()).unwrap_err(),
            comm.broadcast_bytes_into(&[0; 5], &mut [0; 5], DataType::F16, other, long()).unwrap_err(),
        ] {
            assert!(matches!(error, CollectiveError::Reduce(_)), "{error}");
        }
        let refused = comm.start_all_gather(comm.alloc::<i32>(3).unwrap(), long()).unwrap_err();
        assert_eq!(refused.object.len(), 3, "the tensor comes back");
        let tensors = [comm.alloc::<i32>(3).unwrap(), comm.alloc::<i32>(2).unwrap()];
        let [input, output] = tensors;
        let refused = comm.start_reduce_scatter_into(input, output, sum, long()).unwrap_err();
        assert_eq!((refused.object.0.len(), refused.object.1.len()), (3, 2));
        for kind in KINDS {
            assert!(Call { kind, ..CALL }.is_right(&mut comm, Place::Slices));
        }
    });
}
