//! Random numbers that differ, with no copy kept.

use std::collections::HashSet;

use super::*;

#[test]
fn numbers_differ_and_no_copy_is_kept() {
    let mut pool = RandomPool::default();
    let drawn: HashSet<u32> = (0..20 * BATCH).map(|_| pool.next().unwrap()).collect();
    // Among so few numbers more than one repetition is practically impossible.
    assert!(drawn.len() + 1 >= 20 * BATCH);
    assert_eq!((pool.left, pool.drawn), (0, [0; BATCH]));
}

#[test]
fn a_number_beside_another_shares_the_low_bits_and_differs() {
    let mut pool = RandomPool::default();
    let mut last = pool.next().unwrap();
    for _ in 0..20 * BATCH {
        // With 30 bits fixed only four numbers are left, so a repetition would come soon.
        let next = pool.next_beside(last, 30).unwrap();
        assert_eq!(next & 0x3fff_ffff, last & 0x3fff_ffff);
        assert_ne!(next, last);
        last = next;
    }
}
