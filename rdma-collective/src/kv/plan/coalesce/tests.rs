//! Merged lists of writes against a byte-by-byte oracle.

use proptest::prelude::*;

use super::*;
use crate::kv::layout::Side;
use crate::kv::plan::PlanError;

const BYTES: u64 = 200;

fn write(offset_local: u64, offset_remote: u64, len: u64) -> WriteDescriptor {
    WriteDescriptor { offset_local, offset_remote, len }
}

/// Merges a list of writes, in the order of the destination.
fn merged(list: &[WriteDescriptor], write_bytes_max: u32) -> Vec<WriteDescriptor> {
    let mut sorted = list.to_vec();
    sorted.sort_unstable_by_key(|write| write.offset_remote);
    Merge::new(sorted.into_iter(), write_bytes_max).collect()
}

/// The source byte that a list writes to each byte of the destination; `None` if two writes overlap.
fn oracle(writes: &[WriteDescriptor]) -> Option<Vec<Option<u64>>> {
    let mut bytes = vec![None; BYTES as usize];
    for write in writes {
        for byte in 0..write.len {
            if bytes[(write.offset_remote + byte) as usize].replace(write.offset_local + byte).is_some() {
                return None;
            }
        }
    }
    Some(bytes)
}

fn lists() -> impl Strategy<Value = Vec<WriteDescriptor>> {
    let sound = (0_u64..22, 0_u64..22, 1_u64..3).prop_map(|(local, remote, len)| {
        // Offsets lie on a grid, so that neighbours are often adjacent and lists without overlap are common.
        write(local * 8, remote * 8, len * 8)
    });
    prop::collection::vec(sound, 0..8)
}

proptest! {
    #[test]
    fn merged_writes_do_what_the_list_does(list in lists(), write_bytes_max in 1_u32..40) {
        let Some(bytes) = oracle(&list) else { return Ok(()) };
        let writes = merged(&list, write_bytes_max);
        prop_assert_eq!(oracle(&writes), Some(bytes));
        prop_assert!(writes.iter().all(|write| write.len <= write_bytes_max.into()));
        prop_assert!(writes.is_sorted_by_key(|write| write.offset_remote));
    }
}

#[test]
fn adjacent_on_one_side_only_is_not_merged() {
    for list in [[write(0, 0, 4), write(4, 8, 4)], [write(0, 0, 4), write(8, 4, 4)]] {
        assert_eq!(merged(&list, 16), list);
    }
    assert_eq!(merged(&[write(0, 8, 4), write(4, 12, 4)], 16), [write(0, 8, 8)]);
}

#[test]
fn whole_writes_are_merged_up_to_the_bound_and_longer_ones_cut() {
    let list: Vec<WriteDescriptor> = (0..5).map(|index| write(index * 6, 100 + index * 6, 6)).collect();
    let twelve = [write(0, 100, 12), write(12, 112, 12), write(24, 124, 6)];
    assert_eq!(merged(&list, 16), twelve);
    let cut = [write(7, 9, 16), write(23, 25, 16), write(39, 41, 8)];
    assert_eq!(merged(&[write(7, 9, 40)], 16), cut);
}

#[test]
fn each_refusal_names_the_block_and_the_pool() {
    let errors = [
        PlanError::BoundZero,
        PlanError::NoBlocks,
        PlanError::BlockOutOfRange { side: Side::Source, block: 9, blocks: 8 },
        PlanError::BlockRepeated { side: Side::Destination, block: 4 },
    ];
    insta::assert_snapshot!(errors.map(|error| error.to_string()).join("\n"), @r"
        writes of at most 0 bytes move nothing; allow at least 1
        the request has no blocks; leave it out, or give it at least one
        source block 9 is not one of 8; blocks count from 0
        destination block 4 is given twice; give each block of a request once
        ");
}
