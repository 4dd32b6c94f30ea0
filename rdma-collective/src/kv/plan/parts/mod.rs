//! The wanted blocks of a request, layer by layer, when not all are wanted.

/// A set of blocks of a request, by layer and then by position in the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::kv) struct Wanted {
    layers: u32,
    blocks: u32,
    /// A bit for each block; the bits after the last block are 0.
    words: Box<[u32]>,
}

impl Wanted {
    /// The blocks of a request that `is_wanted` has, by layer and position; `None` when they are more than messages can
    /// name.
    pub(in crate::kv) fn of(layers: u32, blocks: u32, is_wanted: impl Fn(u32, u32) -> bool) -> Option<Self> {
        let mut words = vec![0; words_of(layers, blocks)? as usize];
        for (layer, place) in pairs(layers, blocks).filter(|(layer, place)| is_wanted(*layer, *place)) {
            let bit = bit_of(blocks, layer, place);
            *words.get_mut(bit / 32)? |= 1 << (bit % 32);
        }
        Self::from_words(layers, blocks, &words)
    }

    /// The set that a peer sends as bits; `None` for a wrong length, and for bits after the last block.
    pub(in crate::kv) fn from_words(layers: u32, blocks: u32, words: &[u32]) -> Option<Self> {
        if words_of(layers, blocks)? as usize != words.len() {
            return None;
        }
        let beyond = words.len() * 32 - layers as usize * blocks as usize;
        let clear = words.last().is_none_or(|word| word.leading_zeros() as usize >= beyond);
        clear.then(|| Self { layers, blocks, words: words.into() })
    }

    pub(in crate::kv) fn words(&self) -> &[u32] {
        &self.words
    }

    pub(in crate::kv) fn has(&self, layer: u32, place: u32) -> bool {
        let bit = bit_of(self.blocks, layer, place);
        place < self.blocks && self.words.get(bit / 32).is_some_and(|word| word >> (bit % 32) & 1 == 1)
    }

    /// Whether no block is in the set.
    pub(in crate::kv) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
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
mod tests;
