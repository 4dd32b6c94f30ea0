//! The wanted blocks of a request, layer by layer, when not all are wanted.

use crate::kv::verdict::{BlockVerdict, Verdicts};

/// A set of blocks of a request, by layer and then by position in the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kv) struct Wanted {
    layers: u32,
    blocks: u32,
    /// A bit for each block; the bits after the last block are 0.
    words: Box<[u32]>,
}

impl Wanted {
    /// The blocks that are not valid; `None` when all are valid.
    pub(in crate::kv) fn invalid(verdicts: &Verdicts) -> Option<Self> {
        let (layers, blocks) = (verdicts.layers(), verdicts.blocks().len() as u32);
        let mut words = vec![0; words_of(layers, blocks)? as usize];
        for (layer, place) in pairs(layers, blocks) {
            if verdicts.get(layer, place as usize) != Some(BlockVerdict::Valid) {
                let bit = bit_of(blocks, layer, place);
                *words.get_mut(bit / 32)? |= 1 << (bit % 32);
            }
        }
        Self::from_words(layers, blocks, &words)
    }

    /// The set that a peer sends as bits; `None` for an empty set, for a wrong length, and for bits after the last
    /// block.
    pub(in crate::kv) fn from_words(layers: u32, blocks: u32, words: &[u32]) -> Option<Self> {
        if words_of(layers, blocks)? as usize != words.len() || words.iter().all(|word| *word == 0) {
            return None;
        }
        let beyond = words.len() * 32 - layers as usize * blocks as usize;
        let clear = words.last().is_some_and(|word| word.leading_zeros() as usize >= beyond);
        clear.then(|| Self { layers, blocks, words: words.into() })
    }

    pub(in crate::kv) fn words(&self) -> &[u32] {
        &self.words
    }

    pub(in crate::kv) fn has(&self, layer: u32, place: u32) -> bool {
        let bit = bit_of(self.blocks, layer, place);
        place < self.blocks && self.words.get(bit / 32).is_some_and(|word| word >> (bit % 32) & 1 == 1)
    }

    /// Number of blocks in the set, summed over all layers.
    pub(in crate::kv) fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

/// Number of 32-bit words that have a bit for each block of a request in each layer; `None` when the number does not
/// fit 32 bits.
pub(in crate::kv) fn words_of(layers: u32, blocks: u32) -> Option<u32> {
    u32::try_from((u64::from(layers) * u64::from(blocks)).div_ceil(32)).ok()
}

/// Layer and position of every block of a request, in the order of checksums.
pub(in crate::kv) fn pairs(layers: u32, blocks: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..layers).flat_map(move |layer| (0..blocks).map(move |place| (layer, place)))
}

/// Number of blocks of a request, summed over all layers; `None` when messages cannot count them (more than 32 bits).
pub(in crate::kv) fn parts_of(layers: u32, blocks: usize) -> Option<u32> {
    u32::try_from(blocks).ok()?.checked_mul(layers)
}

fn bit_of(blocks: u32, layer: u32, place: u32) -> usize {
    layer as usize * blocks as usize + place as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_not_valid_is_wanted_on_both_sides(layers in 1_u32..5, blocks in 1_u32..40, seed in any::<u64>()) {
            let ids: Vec<u32> = (0..blocks).collect();
            let mut verdicts = Verdicts::new(layers, &ids, BlockVerdict::Valid);
            prop_assert_eq!(Wanted::invalid(&verdicts), None);
            for (layer, place) in pairs(layers, blocks) {
                let verdict = match seed.rotate_left(layer * 7 + place * 3) % 4 {
                    0 => BlockVerdict::Missing,
                    1 => BlockVerdict::Corrupt,
                    _ => BlockVerdict::Valid,
                };
                verdicts.set(layer, place as usize, verdict);
            }
            let Some(wanted) = Wanted::invalid(&verdicts) else {
                prop_assert!(verdicts.all_valid());
                return Ok(());
            };
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
        for words in [&[0, 2][..], &[0, 0], &[1], &[1, 0, 0], &[]] {
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
}
