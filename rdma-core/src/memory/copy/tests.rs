//! Copies compared with `copy_within`, at lengths around each threshold and between ranges that overlap.

use proptest::prelude::*;

use super::*;

/// Returns bytes that differ from their neighbours and from bytes a power of two away, so that a misplaced
/// vector shows.
pub(super) fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

/// Copies within one buffer and compares all of it with `copy_within`, so that writes beside the target show,
/// too.
fn check(len: usize, from: usize, to: usize, hint: CacheHint) {
    let mut bytes = pattern(from.max(to) + len + 64);
    let mut expected = bytes.clone();
    expected.copy_within(from..from + len, to);
    let base = bytes.as_mut_ptr();
    // SAFETY: both ranges are inside `bytes`, and only `base` is used after it was made, so no reference is
    // invalidated.
    unsafe { copy_shared_hinted(base.add(from), base.add(to), len, hint) };
    assert!(bytes == expected, "{len} bytes from {from} to {to}, {hint:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn copies_as_a_plain_copy_does(
        len in 0..=4096_usize,
        from in 0..4096_usize,
        to in 0..4096_usize,
        streamed in any::<bool>(),
    ) {
        check(len, from, to, if streamed { CacheHint::Streamed } else { CacheHint::Cached });
    }
}

#[test]
fn every_length_up_to_4_kib_at_every_kind_of_distance() {
    for len in 0..=4096_usize {
        for distance in [0, 1, 7, 33, 64, len / 2, len.saturating_sub(1), len, len + 1, 4096] {
            check(len, 64, 64 + distance, CacheHint::Cached);
            check(len, 64 + distance, 64, CacheHint::Cached);
        }
    }
}

#[test]
fn lengths_around_every_threshold() {
    let streamed = kernels::stream_from().min(16 << 20);
    for threshold in [256, 4 << 10, 16 << 10, streamed] {
        for len in
            [threshold - 129, threshold - 1, threshold, threshold + 1, threshold + 127, threshold + 4097]
        {
            for (from, to) in [(0, len), (7, len + 40), (len + 33, 1), (3, 4), (4, 3), (0, 4096), (4000, 0)] {
                check(len, from, to, CacheHint::Cached);
                check(len, from, to, CacheHint::Streamed);
            }
        }
    }
}

/// Guard pages lie on both sides of an allocation, so an access beyond its ends faults.
#[test]
fn nothing_is_read_or_written_beyond_the_ends() {
    const BYTES: usize = 64 << 10;
    let [source, target] = [(); 2].map(|()| super::super::Mapping::allocate(BYTES).unwrap());
    let (source, target) = (source.as_ptr().as_ptr(), target.as_ptr().as_ptr());
    for len in (1..=1024).chain([8 << 10, 16 << 10, BYTES - 1, BYTES]) {
        for hint in [CacheHint::Cached, CacheHint::Streamed] {
            // SAFETY: the ranges are inside two live mappings of `BYTES` bytes, so every access is valid.
            unsafe {
                copy_shared_hinted(source, target, len, hint);
                copy_shared_hinted(source.add(BYTES - len), target.add(BYTES - len), len, hint);
            }
        }
    }
}

#[test]
fn a_slice_is_copied_as_far_as_both_go() {
    let (from, mut to) = (pattern(100), [0; 60]);
    copy_slice(&from, &mut to, CacheHint::of_total(60));
    assert_eq!(from[..60], to);
    copy_slice(&[], &mut to, CacheHint::Streamed);
    copy_slice(&from[50..53], &mut to, CacheHint::Cached);
    assert_eq!((&from[50..53], &from[3..60]), to.split_at(3));
}
