//! Whole pages, resident memory, and ranges that overflow.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[test]
fn pages_are_counted_whole() {
    let pinned = |address, length| PinningNeed::range(address, length).pinned_bytes(4096);
    assert_eq!(pinned(0, 0), 0);
    assert_eq!(pinned(0, 1), 4096);
    assert_eq!(pinned(4095, 1), 4096);
    assert_eq!(pinned(4095, 2), 8192);
    assert_eq!(pinned(4096, 4096), 4096);
    assert_eq!(PinningNeed::length(4097).pinned_bytes(65536), 65536);
}

#[test]
fn resident_memory_is_pinned_but_not_new() {
    let need = PinningNeed::length(1 << 20).registrations(2);
    assert_eq!((need.pinned_bytes(4096), need.new_bytes(4096)), (2 << 20, 1 << 20));
    assert_eq!((need.resident().pinned_bytes(4096), need.resident().new_bytes(4096)), (2 << 20, 0));
}

proptest! {
    #[test]
    fn no_range_overflows(address: u64, length: u64, rails: u64, page: u64) {
        let need = PinningNeed::range(address, length).registrations(rails);
        let _ = (need.pinned_bytes(page), need.new_bytes(page));
    }

    #[test]
    fn pages_match_a_count(address in 0..100_000_u64, length in 1..100_000_u64, shift in 8..16_u32) {
        let page = 1_u64 << shift;
        let pages: BTreeSet<_> = (address..address + length).map(|a| a / page).collect();
        let need = PinningNeed::range(address, length);
        prop_assert_eq!(need.pinned_bytes(page), pages.len() as u64 * page);
    }
}
