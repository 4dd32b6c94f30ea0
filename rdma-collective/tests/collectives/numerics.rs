//! The numerics contract, bit for bit: every type and operation over the software device, against a scalar oracle that
//! takes the ranks in the order that the contract names.

#[path = "../oracle/mod.rs"]
mod oracle;

use crate::common::{WIRES, long};
use crate::world::each_communicator;
use proptest::prelude::*;
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_collective::collective::{DataType, Element, ReduceOp, bf16, f16};
use rdma_core::Wire;

/// A single operation, alike on all ranks but for where the result goes.
#[derive(Debug, Clone, Copy)]
struct Call {
    count: usize,
    data_type: DataType,
    op: ReduceOp,
    seed: u64,
}

impl Call {
    /// The elements of a rank: one in four any bits at all, the others of a size at which sums round and cancel.
    fn input(self, rank: u32) -> Vec<u64> {
        // The bits of 1.0, and the number of bits of the fraction.
        let (one, fraction) = match self.data_type {
            DataType::F16 => (0x3c00, 10),
            DataType::Bf16 => (0x3f80, 7),
            DataType::F32 => (0x3f80_0000, 23),
            DataType::F64 => (0x3ff0_0000_0000_0000, 52),
            _ => (0, 0),
        };
        let bits = 8 * self.data_type.size();
        let element = |index| {
            let mut mixed = self.seed ^ u64::from(rank) << 40 ^ index as u64;
            for _ in 0..2 {
                mixed = (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
            let any = mixed.rotate_left(32) & (u64::MAX >> (64 - bits));
            if mixed.is_multiple_of(4) || one == 0 {
                return any;
            }
            let sign = any & 1 << (bits - 1);
            sign | (one - ((mixed >> 2 & 7) << fraction)) | any & ((1 << fraction) - 1)
        };
        (0..self.count).map(element).collect()
    }

    /// The result that every rank must have, if an element is reduced from rank `first` of its index on; without such
    /// ranks, in pairs.
    fn expected(self, ranks: u32, first: Option<&[u32]>, options: &CommunicatorOptions) -> Vec<u8> {
        let inputs: Vec<Vec<u64>> = (0..ranks).map(|rank| self.input(rank)).collect();
        let element = |index| {
            let all: Vec<u64> = inputs.iter().map(|input| input[index]).collect();
            let all = match first {
                None => self.in_pairs(&all, self.is_merged(ranks, options)),
                Some(first) => {
                    let own = |step| all[((first[index] + step) % ranks) as usize];
                    (1..ranks)
                        .fold(own(0), |all, step| oracle::combine(self.data_type, self.op, all, own(step)))
                }
            };
            // A rank that is alone copies.
            if ranks == 1 { all } else { oracle::finish(self.data_type, self.op, all, ranks) }
        };
        oracle::bytes(self.data_type, (0..self.count).map(element))
    }

    /// Whether a short all-reduce merges the ranks beyond a power of two: where there are few ranks, and all of the
    /// buffer fits the slots of a link.
    fn is_merged(self, ranks: u32, options: &CommunicatorOptions) -> bool {
        let CommunicatorOptions { slots, slot_bytes, chunk_bytes_min, .. } = *options;
        let (size, ahead) = (self.data_type.size(), usize::from(slots / 2).max(1));
        let worth = self.count * size / chunk_bytes_min.max(size);
        let chunks = self.count.div_ceil(slot_bytes / size).max(worth.min(ahead));
        ranks < 8 && chunks <= usize::from(slots)
    }

    /// The operands reduced as a short all-reduce by doubling does: the first ranks, the largest power of two that
    /// there is, in halves. The rest are `merged`, which means reduced in the same way and added last, or each is added
    /// to one of the first ranks before.
    fn in_pairs(self, operands: &[u64], merged: bool) -> u64 {
        let combine = |left, right| oracle::combine(self.data_type, self.op, left, right);
        let [one] = operands else {
            let power = 1 << operands.len().ilog2();
            let (left, right) = operands.split_at(if power == operands.len() { power / 2 } else { power });
            if power < operands.len() && !merged {
                let folded = (0..)
                    .zip(left)
                    .map(|(at, left)| right.get(at).map_or(*left, |right| combine(*left, *right)));
                return self.in_pairs(&folded.collect::<Vec<_>>(), merged);
            }
            return combine(self.in_pairs(left, merged), self.in_pairs(right, merged));
        };
        *one
    }

    /// The rank at which a ring begins to reduce each element: the rank in whose segment the element lies.
    ///
    /// Written from the documented cut alone: rounds of one segment a rank, in which half of the slots hold a segment.
    fn ring(self, ranks: u32, options: &CommunicatorOptions) -> Vec<u32> {
        let CommunicatorOptions { slots, slot_bytes, chunk_bytes_min, .. } = *options;
        let (ranks, size) = (ranks as usize, self.data_type.size());
        let segment_bytes = self.count.div_ceil(ranks) * size;
        let chunks = (segment_bytes / chunk_bytes_min.max(1)).clamp(1, usize::from(slots / 2).max(1));
        let rounds = self.count.div_ceil(ranks * chunks * (slot_bytes / size));
        // Parts as equal as can be, the first ones longer by one.
        let split =
            |total, parts| (0..parts).map(move |part| total / parts + usize::from(part < total % parts));
        let segments = split(self.count, rounds).flat_map(|round| (0..).zip(split(round, ranks)));
        segments.flat_map(|(rank, len)| std::iter::repeat_n(rank, len)).collect()
    }

    fn run(self, comm: &mut Communicator) -> Vec<u8> {
        let Self { data_type, op, .. } = self;
        let input = oracle::bytes(data_type, self.input(comm.rank()));
        match (self.seed >> comm.rank()) % 3 {
            0 => {
                let mut data = input;
                comm.all_reduce_bytes(&mut data, data_type, op, long()).unwrap();
                data
            }
            1 => {
                let mut output = vec![0xa5; input.len()];
                comm.all_reduce_bytes_into(&input, &mut output, data_type, op, long()).unwrap();
                output
            }
            _ => match data_type {
                DataType::I8 => registered::<i8>(comm, &input, op),
                DataType::U8 => registered::<u8>(comm, &input, op),
                DataType::I16 => registered::<i16>(comm, &input, op),
                DataType::U16 => registered::<u16>(comm, &input, op),
                DataType::I32 => registered::<i32>(comm, &input, op),
                DataType::U32 => registered::<u32>(comm, &input, op),
                DataType::I64 => registered::<i64>(comm, &input, op),
                DataType::U64 => registered::<u64>(comm, &input, op),
                DataType::F16 => registered::<f16>(comm, &input, op),
                DataType::F32 => registered::<f32>(comm, &input, op),
                DataType::F64 => registered::<f64>(comm, &input, op),
                DataType::Bf16 => registered::<bf16>(comm, &input, op),
                other => panic!("{other} is not tested"),
            },
        }
    }
}

/// Runs the calls on memory that is sent without a copy.
fn registered<T: Element>(comm: &mut Communicator, input: &[u8], op: ReduceOp) -> Vec<u8> {
    let mut tensor = comm.alloc::<T>(input.len() / size_of::<T>()).unwrap();
    T::as_bytes_mut(&mut tensor).copy_from_slice(input);
    let tensor = comm.start_all_reduce(tensor, op, long()).unwrap().wait(long()).unwrap();
    T::as_bytes(&tensor).to_vec()
}

/// Carries the calls out, and checks every bit on every rank.
fn check(ranks: u32, wire: Wire, options: CommunicatorOptions, calls: Vec<Call>) {
    let reproducible = options.reproducible;
    let shared = calls.clone();
    let got = each_communicator(ranks, wire, options.clone(), move |mut comm| {
        let results: Vec<Vec<u8>> = shared.iter().map(|call| call.run(&mut comm)).collect();
        comm.close(long()).unwrap();
        results
    });
    for (index, call) in calls.iter().enumerate() {
        let first = if reproducible { vec![0; call.count] } else { call.ring(ranks, &options) };
        // Over TCP there are links alone, and these calls are short.
        let rings = reproducible || wire != Wire::Tcp;
        let expected = call.expected(ranks, rings.then_some(&first[..]), &options);
        for (rank, results) in got.iter().enumerate() {
            assert!(
                results[index] == expected,
                "{call:?} on rank {rank} of {ranks}, reproducible {reproducible}"
            );
        }
    }
}

#[test]
fn every_type_and_operation_is_the_oracles_on_1_to_8_ranks() {
    for ranks in 1..=8 {
        for reproducible in [false, true] {
            let mut seed = u64::from(ranks) << 8;
            let mut calls = Vec::new();
            for &data_type in DataType::ALL {
                for &op in ReduceOp::ALL {
                    seed += 1;
                    calls.push(Call { count: 500 + seed as usize % 7, data_type, op, seed });
                }
            }
            // Lengths for the eager protocol, and for the ring.
            let usual = CommunicatorOptions { reproducible, ..CommunicatorOptions::default() };
            check(ranks, Wire::Local, usual.clone(), calls.clone());
            let options = CommunicatorOptions { slots: 4, slot_bytes: 256, chunk_bytes_min: 64, ..usual };
            check(ranks, Wire::Local, options, calls);
        }
    }
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let counts = prop_oneof![Just(0_usize), 1..40_usize, 1..3000_usize];
    let types = prop::sample::select(DataType::ALL);
    let call = (counts, types, prop::sample::select(ReduceOp::ALL), any::<u64>())
        .prop_map(|(count, data_type, op, seed)| Call { count, data_type, op, seed });
    prop::collection::vec(call, 1..6)
}

fn options() -> impl Strategy<Value = CommunicatorOptions> {
    let sizes = (1_u16..12, 1_usize..400, 0_usize..2000);
    let small = (sizes, any::<bool>()).prop_map(|((slots, elements, chunk_bytes_min), reproducible)| {
        CommunicatorOptions {
            slots,
            slot_bytes: elements * 8,
            chunk_bytes_min,
            reproducible,
            ..CommunicatorOptions::default()
        }
    });
    let usual = any::<bool>()
        .prop_map(|reproducible| CommunicatorOptions { reproducible, ..CommunicatorOptions::default() });
    prop_oneof![1 => usual, 3 => small]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// The oracle of a reproducible operation knows nothing of slots, chunks and places: the bits do not depend on
    /// them.
    #[test]
    fn bits_are_the_oracles_whatever_the_sizes_the_wire_and_the_places(
        ranks in 1_u32..9,
        wire in prop::sample::select(&WIRES),
        options in options(),
        calls in calls(),
    ) {
        check(ranks, wire, options, calls);
    }
}

#[test]
fn ranks_that_do_not_agree_on_the_order_are_told_before_they_begin() {
    let errors = crate::world::each_rank(3, Wire::Local, |mut rank| {
        let options = CommunicatorOptions { reproducible: rank.rank == 1, ..CommunicatorOptions::default() };
        Communicator::new(&rank.engine, &mut rank.store, options, long()).unwrap_err().to_string()
    });
    assert!(errors.iter().all(|error| error.contains("reproducible")), "{errors:?}");
}
