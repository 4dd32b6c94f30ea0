//! Wanted blocks on both sides, and the sets of bits that are refused.

use proptest::prelude::*;

use super::*;
use crate::kv::{BlockVerdict, Verdicts};

proptest! {
    #[test]
    fn what_is_not_valid_is_wanted_on_both_sides(layers in 1_u32..5, blocks in 1_u32..40, seed in any::<u64>()) {
        let ids: Vec<u32> = (0..blocks).collect();
        let mut verdicts = Verdicts::new(layers, &ids[..], BlockVerdict::Valid);
        prop_assert!(verdicts.wanted().unwrap().is_empty());
        for (layer, place) in pairs(layers, blocks) {
            let verdict = match seed.rotate_left(layer * 7 + place * 3) % 4 {
                0 => BlockVerdict::Missing,
                1 => BlockVerdict::Corrupt,
                _ => BlockVerdict::Valid,
            };
            verdicts.set(layer, place as usize, verdict);
        }
        let wanted = verdicts.wanted().unwrap();
        prop_assert_eq!(wanted.is_empty(), verdicts.all_valid());
        let back = Wanted::from_words(layers, blocks, wanted.words());
        prop_assert_eq!(back.as_ref(), Some(&wanted));
        prop_assert_eq!(wanted.count() as usize, verdicts.invalid().count());
        for (layer, place) in pairs(layers, blocks) {
            let valid = verdicts.get(layer, place as usize) == Some(BlockVerdict::Valid);
            prop_assert_eq!(wanted.has(layer, place), !valid);
        }
    }
}

#[test]
fn bits_that_stand_for_nothing_and_other_lengths_are_refused() {
    assert!(Wanted::from_words(3, 11, &[0, 1]).is_some());
    assert!(Wanted::from_words(3, 11, &[0, 0]).unwrap().is_empty());
    for words in [&[0, 2][..], &[1], &[1, 0, 0], &[]] {
        assert_eq!(Wanted::from_words(3, 11, words), None, "{words:?}");
    }
    assert_eq!(Wanted::from_words(u32::MAX, u32::MAX, &[1]), None);
}

#[test]
fn more_blocks_than_messages_can_count_are_not_counted() {
    assert_eq!(parts_of(80, 10_000), Some(800_000));
    assert_eq!((parts_of(1, u32::MAX as usize), parts_of(0, 9)), (Some(u32::MAX), Some(0)));
    // The product wraps to a small number in 32 bits.
    assert_eq!([parts_of(1 << 16, 1 << 16), parts_of(2, (1 << 31) + 3)], [None; 2]);
    assert_eq!(parts_of(1, (1 << 32) + 1), None);
}
