//! Several operands at once, of any length, at any address.

use ::half::{bf16, f16};
use proptest::prelude::*;

use super::*;

/// The most operands that are tried.
const OPERANDS_MAX: usize = 9;
/// Where ranges begin in their lines.
const SHIFTS: std::ops::Range<usize> = 0..64;

/// The expected result of one element of each operand, folded from the left; half precision is folded in single.
fn oracles(data_type: DataType, op: ReduceOp, ranks: Option<u32>, operands: &[u64]) -> u64 {
    let fold = |computed, operands: &mut dyn Iterator<Item = u64>| {
        let all = operands.reduce(|all, next| oracle::combine(computed, op, all, next)).unwrap();
        ranks.map_or(all, |ranks| oracle::finish(computed, op, all, ranks))
    };
    let operands = operands.iter().copied();
    let single = |bits: u64| f32::from_bits(bits as u32);
    let wide = |value: f32| u64::from(value.to_bits());
    let bits = match (data_type, op) {
        (DataType::F16, ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Avg) => {
            let all = single(fold(
                DataType::F32,
                &mut operands.map(|bits| wide(f16::from_bits(bits as u16).to_f32())),
            ));
            if all.is_nan() { 0x7e00 } else { f16::from_f32(all).to_bits() }
        }
        (DataType::Bf16, ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Avg) => {
            let all = single(fold(
                DataType::F32,
                &mut operands.map(|bits| wide(bf16::from_bits(bits as u16).to_f32())),
            ));
            if all.is_nan() { 0x7fc0 } else { bf16::from_f32(all).to_bits() }
        }
        _ => return fold(data_type, &mut { operands }),
    };
    bits.into()
}

/// Operands of one length, and what they become.
struct Case {
    reduction: Reduction,
    data_type: DataType,
    operands: Vec<Vec<u8>>,
    expected: Vec<u8>,
}

impl Case {
    /// Operands of elements given by their bits; bits beyond the type's are left out.
    fn new(data_type: DataType, op: ReduceOp, ranks: Option<u32>, elements: &[Vec<u64>]) -> Self {
        let mask = u64::MAX >> (64 - 8 * data_type.size());
        let elements: Vec<Vec<u64>> =
            elements.iter().map(|operand| operand.iter().map(|bits| bits & mask).collect()).collect();
        let expected = (0..elements[0].len()).map(|index| {
            let operands: Vec<u64> = elements.iter().map(|operand| operand[index]).collect();
            oracles(data_type, op, ranks, &operands)
        });
        let expected = oracle::bytes(data_type, expected);
        let operands =
            elements.iter().map(|operand| oracle::bytes(data_type, operand.iter().copied())).collect();
        let reduction = Reduction::new(data_type, op);
        let reduction = ranks.map_or(reduction, |ranks| reduction.over(ranks));
        Self { reduction, data_type, operands, expected }
    }

    /// Checks the first elements, each range as far behind the beginning of a line as it is told, by all vectors.
    fn check(&self, count: usize, out_shift: usize, shifts: &[usize]) {
        let bytes = count * self.data_type.size();
        let (expected, mut lines) = (&self.expected[..bytes], vec![[0xa5_u64; 8]; bytes / 64 + 4]);
        // The allocator aligns to less than a line.
        let begin = bytemuck::cast_slice::<_, u8>(&lines).as_ptr().align_offset(64) + out_shift;
        let memory: &mut [u8] = bytemuck::cast_slice_mut(&mut lines);
        let operands: Vec<Vec<u8>> =
            self.operands.iter().zip(shifts).map(|(all, &shift)| at(shift, &all[..bytes])).collect();
        let inputs: Vec<&[u8]> =
            operands.iter().zip(shifts).map(|(operand, &shift)| &operand[shift..]).collect();
        each_way(self.reduction, |reduction| {
            for in_place in [false, true] {
                memory.fill(0xa5);
                let out = &mut memory[begin..begin + bytes];
                if in_place {
                    out.copy_from_slice(inputs[0]);
                    reduction.reduce_into(out, &inputs[1..]).unwrap();
                } else {
                    reduction.reduce(out, &inputs).unwrap();
                }
                assert!(
                    out == expected,
                    "{count} elements of {} operands at {out_shift} from {shifts:?}, in place {in_place}, by \
                     {reduction:?}: {:x?}",
                    inputs.len(),
                    read(self.data_type, out)
                        .into_iter()
                        .zip(read(self.data_type, expected))
                        .find(|(got, expected)| got != expected)
                );
                let around = memory[..begin].iter().chain(&memory[begin + bytes..]);
                assert!(around.copied().all(|byte| byte == 0xa5), "beside the output, by {reduction:?}");
            }
        });
    }
}

/// Bits of which many are near each other, so that sums of floats round and cancel.
fn near(mixed: u64) -> u64 {
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let [a, b, c, ..] = mixed.to_be_bytes().map(u64::from);
    0x3f8c_3c00_3f80_3ff0 ^ a ^ b << 17 ^ c << 48 ^ a << 55
}

#[test]
fn every_length_around_vectors_lines_and_tiles_is_whole() {
    for &data_type in DataType::ALL {
        let tile = 1024 / data_type.size();
        let elements: Vec<Vec<u64>> = (0..5_u64)
            .map(|operand| (0..2 * tile as u64 + 3).map(|index| near(operand << 32 | index)).collect())
            .collect();
        let edges = [tile / 2, tile, 2 * tile].into_iter().flat_map(|edge| edge - 2..edge + 3);
        for operands in [2, 5] {
            let case = Case::new(data_type, ReduceOp::Sum, None, &elements[..operands]);
            for count in (0..140).chain(edges.clone()) {
                let shift = count * 8 / data_type.size() % 64;
                case.check(count, shift, &[shift, 0, 8, 16, 24]);
            }
        }
    }
}

#[test]
fn every_beginning_of_a_range_is_whole() {
    for &data_type in DataType::ALL {
        let elements: Vec<Vec<u64>> =
            (0..3_u64).map(|operand| (0..150).map(|index| near(operand << 32 | index)).collect()).collect();
        for operands in [2, 3] {
            let case = Case::new(data_type, ReduceOp::Max, None, &elements[..operands]);
            for shift in SHIFTS {
                case.check(150, shift, &[0, 0, 0]);
                case.check(150, 0, &[shift, 1, shift]);
            }
        }
    }
}

#[test]
fn a_sum_of_halves_is_rounded_once_and_an_average_divided_before() {
    let reduce = |op, operands: &[f16]| {
        let operands: Vec<[u8; 2]> = operands.iter().map(|operand| operand.to_ne_bytes()).collect();
        let inputs: Vec<&[u8]> = operands.iter().map(|operand| &operand[..]).collect();
        let mut out = [0; 2];
        Reduction::new(DataType::F16, op).over(3).reduce(&mut out, &inputs).unwrap();
        f16::from_ne_bytes(out)
    };
    // Each 1 is half of the distance between neighbours there, and would be lost by itself.
    assert_eq!(reduce(ReduceOp::Sum, &[2048.0, 1.0, 1.0].map(f16::from_f32)), f16::from_f32(2050.0));
    assert_eq!(reduce(ReduceOp::Sum, &[f16::MAX; 3]), f16::INFINITY);
    assert_eq!(reduce(ReduceOp::Avg, &[f16::MAX; 3]), f16::MAX);
}

fn operands() -> impl Strategy<Value = Vec<Vec<u64>>> {
    let element = prop_oneof![any::<u64>(), any::<u64>().prop_map(near)];
    (1..=OPERANDS_MAX, 0..700_usize).prop_flat_map(move |(operands, count)| {
        prop::collection::vec(prop::collection::vec(element.clone(), count), operands)
    })
}

proptest! {
    #[test]
    fn every_type_and_operation_is_the_oracles_for_operands_of_any_number_length_and_address(
        data_type in prop::sample::select(DataType::ALL),
        op in prop::sample::select(ReduceOp::ALL),
        ranks in prop::option::of(1_u32..10),
        elements in operands(),
        out_shift in SHIFTS,
        shifts in prop::collection::vec(SHIFTS, OPERANDS_MAX),
    ) {
        // A single operand keeps its bits, unless it is divided.
        prop_assume!(elements.len() > 1 || (op, ranks.is_some()) == (ReduceOp::Avg, true));
        Case::new(data_type, op, ranks, &elements).check(elements[0].len(), out_shift, &shifts);
    }
}
