//! Lists of writes against a byte-by-byte oracle, and those that are refused.

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { local_len: 200, remote_len: 200, write_bytes_max: 16 };

fn write(offset_local: u64, offset_remote: u64, len: u64) -> WriteDescriptor {
    WriteDescriptor { offset_local, offset_remote, len }
}

/// The effect of a list on each byte of the destination, or the reason why the list is not sound.
fn oracle(writes: &[WriteDescriptor], limits: Limits) -> Result<Vec<Option<u64>>, &'static str> {
    let mut bytes = vec![None; limits.remote_len as usize];
    for write in writes {
        if write.len == 0 {
            return Err("empty");
        }
        let last = |offset: u64| u128::from(offset) + u128::from(write.len);
        if last(write.offset_local) > limits.local_len.into()
            || last(write.offset_remote) > limits.remote_len.into()
        {
            return Err("out of range");
        }
    }
    for write in writes {
        for byte in 0..write.len {
            if bytes[(write.offset_remote + byte) as usize].replace(write.offset_local + byte).is_some() {
                return Err("overlap");
            }
        }
    }
    Ok(bytes)
}

fn lists() -> impl Strategy<Value = Vec<WriteDescriptor>> {
    let sound = (0_u64..22, 0_u64..22, 1_u64..3).prop_map(|(local, remote, len)| {
        // Offsets lie on a grid, so that neighbours are often adjacent and lists without overlap are common.
        write(local * 8, remote * 8, len * 8)
    });
    let loose =
        (0_u64..210, 0_u64..210, 0_u64..30).prop_map(|(local, remote, len)| write(local, remote, len));
    let wild =
        (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(local, remote, len)| write(local, remote, len));
    prop_oneof![
        6 => prop::collection::vec(sound.clone(), 0..8),
        1 => prop::collection::vec(prop_oneof![20 => sound, 1 => loose, 1 => wild], 0..8),
    ]
}

proptest! {
    #[test]
    fn coalesced_writes_do_what_the_list_does_or_it_is_refused(list in lists(), write_bytes_max in 1_u32..40) {
        let limits = Limits { write_bytes_max, ..LIMITS };
        match (coalesce(&list, limits), oracle(&list, limits)) {
            (Ok(writes), Ok(bytes)) => {
                prop_assert_eq!(oracle(&writes, limits).unwrap(), bytes);
                prop_assert!(writes.iter().all(|write| write.len <= write_bytes_max.into()));
                prop_assert!(writes.is_sorted_by_key(|write| write.offset_remote));
            }
            (Err(PlanError::Empty { .. }), Err("empty")) | (Err(PlanError::Overlap { .. }), Err("overlap")) => {}
            // A list may be unsound in several ways; the error names the first one found.
            (
                Err(PlanError::Wraps { .. } | PlanError::OutOfRange { .. } | PlanError::Empty { .. }),
                Err("out of range" | "empty"),
            ) => {}
            (found, expected) => prop_assert!(false, "{found:?} for {expected:?}"),
        }
    }
}

#[test]
fn adjacent_on_one_side_only_is_not_merged() {
    for list in [[write(0, 0, 4), write(4, 8, 4)], [write(0, 0, 4), write(8, 4, 4)]] {
        assert_eq!(coalesce(&list, LIMITS).unwrap(), list);
    }
    assert_eq!(coalesce(&[write(0, 8, 4), write(4, 12, 4)], LIMITS).unwrap(), [write(0, 8, 8)]);
}

#[test]
fn whole_writes_are_merged_up_to_the_bound_and_longer_ones_cut() {
    let list: Vec<WriteDescriptor> = (0..5).map(|index| write(index * 6, 100 + index * 6, 6)).collect();
    let twelve = [write(0, 100, 12), write(12, 112, 12), write(24, 124, 6)];
    assert_eq!(coalesce(&list, LIMITS).unwrap(), twelve);
    let cut = [write(7, 9, 16), write(23, 25, 16), write(39, 41, 8)];
    assert_eq!(coalesce(&[write(7, 9, 40)], LIMITS).unwrap(), cut);
}

#[test]
fn each_unsound_write_is_named() {
    let refused = |list: &[WriteDescriptor]| coalesce(list, LIMITS).unwrap_err();
    let errors = [
        refused(&[write(0, 0, 1), write(4, 4, 0)]),
        refused(&[write(u64::MAX - 3, 0, 4)]),
        refused(&[write(0, u64::MAX, 8)]),
        refused(&[write(193, 0, 8)]),
        refused(&[write(0, 193, 8)]),
        refused(&[write(0, 8, 8), write(20, 100, 8), write(40, 15, 8)]),
        refused(&[write(0, 8, 8), write(0, 8, 8)]),
        coalesce(&[], Limits { write_bytes_max: 0, ..LIMITS }).unwrap_err(),
        PlanError::NoBlocks,
        PlanError::BlockOutOfRange { side: Side::Source, block: 9, blocks: 8 },
        PlanError::BlockRepeated { side: Side::Destination, block: 4 },
    ];
    insta::assert_snapshot!(errors.map(|error| error.to_string()).join("\n"), @r"
        write 1 has no bytes; leave it out
        write 0 of 4 bytes at source offset 18446744073709551612 wraps around; check how it was made
        write 0 of 8 bytes at destination offset 18446744073709551615 wraps around; check how it was made
        write 0 ends at source byte 201 of 200; keep it within the memory
        write 0 ends at destination byte 201 of 200; keep it within the memory
        writes 0 and 2 overlap at the destination; write each byte once
        writes 0 and 1 overlap at the destination; write each byte once
        writes of at most 0 bytes move nothing; allow at least 1
        the request has no blocks; leave it out, or give it at least one
        source block 9 is not one of 8; blocks count from 0
        destination block 4 is given twice; give each block of a request once
        ");
}
