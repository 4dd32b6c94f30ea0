//! The content of every block of every layer: recomputed wherever it is needed, never stored. No I/O.
//!
//! Each 8-byte word is a mix of (seed, owner, word), one-to-one in the word for a given owner and as good as
//! random between owners, so that a block, a layer or a word in the wrong place is seen.

/// The owner of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Bytes that prefill computed: a block of the request, by its place in the request.
    Request {
        /// Layer.
        layer: u32,
        /// Block, counted from the prompt's first.
        block: u32,
    },
    /// Bytes that lay in decode's pool before: a block of the pool, by its place in the pool.
    Pool {
        /// Layer.
        layer: u32,
        /// Block of the pool.
        block: u32,
    },
}

/// A generator of contents; the same seed on both sides gives the same bytes.
#[derive(Debug, Clone, Copy)]
pub struct Content {
    seed: u64,
}

/// Result of a look at decode's pools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verified {
    /// Blocks of the request whose every byte is right.
    pub blocks: u64,
    /// Bytes of the other blocks that changed.
    pub other_bytes: u64,
}

const WORD: usize = 8;

impl Content {
    /// The contents of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Writes the owner's bytes from its `offset` on, which is a multiple of 8.
    pub fn fill(&self, owner: Owner, offset: u64, bytes: &mut [u8]) {
        let (key, first) = (self.key(owner), offset / WORD as u64);
        let mut words = bytes.chunks_exact_mut(WORD);
        let mut index = first;
        for word in &mut words {
            word.copy_from_slice(&mix(key.wrapping_add(index)).to_le_bytes());
            index = index.wrapping_add(1);
        }
        let tail = words.into_remainder();
        let last = mix(key.wrapping_add(index)).to_le_bytes();
        tail.iter_mut().zip(last).for_each(|(byte, expected)| *byte = expected);
    }

    /// How many of the bytes differ from the owner's from its `offset` on, which is a multiple of 8.
    pub fn wrong(&self, owner: Owner, offset: u64, bytes: &[u8]) -> u64 {
        let (key, first) = (self.key(owner), offset / WORD as u64);
        let expected = |index: usize| mix(key.wrapping_add(first.wrapping_add(index as u64)));
        let (words, tail) = bytes.as_chunks::<WORD>();
        let mut differing = 0;
        for (index, word) in words.iter().enumerate() {
            let difference = u64::from_le_bytes(*word) ^ expected(index);
            if difference != 0 {
                differing += difference.to_le_bytes().iter().filter(|&&byte| byte != 0).count() as u64;
            }
        }
        let last = expected(words.len()).to_le_bytes();
        differing + tail.iter().zip(last).filter(|&(&byte, expected)| byte != expected).count() as u64
    }

    /// Where an owner's words begin in the sequence that [`mix`] scrambles.
    fn key(&self, owner: Owner) -> u64 {
        let (kind, layer, block) = match owner {
            Owner::Request { layer, block } => (1, layer, block),
            Owner::Pool { layer, block } => (2, layer, block),
        };
        let place = u64::from(layer) << 32 | u64::from(block);
        mix(mix(self.seed.wrapping_add(kind)) ^ place)
    }
}

/// A bijection of 64 bits that changes about half of them for any change of one (splitmix64's finisher).
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Distinct block ids of a pool in an order that follows from the seed alone.
///
/// Gives `count` ids below `pool_blocks`, or as many as there are.
pub fn shuffled(seed: u64, pool_blocks: u32, count: u32) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..pool_blocks).collect();
    let count = count.min(pool_blocks);
    for index in 0..count {
        let left = u64::from(pool_blocks - index);
        let random =
            mix(seed.wrapping_add(u64::from(index)).wrapping_mul(0xd129_42f1_35a3_b5ed)
                ^ seed.rotate_left(32));
        let pick = index + ((u128::from(random) * u128::from(left)) >> 64) as u32;
        ids.swap(index as usize, pick as usize);
    }
    ids.truncate(count as usize);
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const SOME: Owner = Owner::Request { layer: 3, block: 17 };

    fn filled(owner: Owner, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        Content::new(42).fill(owner, 0, &mut bytes);
        bytes
    }

    #[test]
    fn every_block_of_a_request_and_a_pool_is_unique() {
        let mut seen = HashSet::new();
        for layer in 0..80 {
            for block in 0..64 {
                assert!(seen.insert(filled(Owner::Request { layer, block }, 16)));
                assert!(seen.insert(filled(Owner::Pool { layer, block }, 16)));
            }
        }
    }

    #[test]
    fn another_seed_layer_block_kind_or_place_is_seen() {
        let bytes = filled(SOME, 4096);
        let content = Content::new(42);
        assert_eq!(content.wrong(SOME, 0, &bytes), 0);
        for other in [
            Owner::Request { layer: 4, block: 17 },
            Owner::Request { layer: 3, block: 18 },
            Owner::Request { layer: 17, block: 3 },
            Owner::Pool { layer: 3, block: 17 },
        ] {
            assert!(content.wrong(other, 0, &bytes) > 4000, "{other:?}");
        }
        assert!(Content::new(43).wrong(SOME, 0, &bytes) > 4000);
        assert!(content.wrong(SOME, 8, &bytes) > 4000);
        assert!(content.wrong(SOME, 0, &[0; 4096]) > 4000);
    }

    #[test]
    fn ids_of_both_sides_differ_and_follow_from_the_seed() {
        assert_eq!(shuffled(1, 100, 50), shuffled(1, 100, 50));
        assert_ne!(shuffled(1, 100, 50), shuffled(2, 100, 50));
        assert!(!shuffled(1, 1000, 500).is_sorted());
        assert!(shuffled(1, 0, 5).is_empty());
    }

    proptest! {
        #[test]
        fn pieces_make_the_whole(length in 0usize..200, at in 0usize..25) {
            let whole = filled(SOME, length);
            let at = (at * 8).min(length / 8 * 8);
            let content = Content::new(42);
            prop_assert_eq!(content.wrong(SOME, 0, &whole[..at]), 0);
            prop_assert_eq!(content.wrong(SOME, at as u64, &whole[at..]), 0);
            let mut tail = vec![0; length - at];
            content.fill(SOME, at as u64, &mut tail);
            prop_assert_eq!(&tail, &whole[at..]);
        }

        #[test]
        fn every_wrong_byte_is_counted(length in 1usize..200, flips in prop::collection::hash_set(0usize..200, 1..9), by in 1u8..) {
            let mut bytes = filled(SOME, length);
            let flips: HashSet<usize> = flips.into_iter().map(|at| at % length).collect();
            for &at in &flips {
                bytes[at] ^= by;
            }
            prop_assert_eq!(Content::new(42).wrong(SOME, 0, &bytes), flips.len() as u64);
        }

        #[test]
        fn ids_are_distinct_and_in_the_pool(seed: u64, pool in 0u32..500, count in 0u32..600) {
            let ids = shuffled(seed, pool, count);
            prop_assert_eq!(ids.len() as u32, count.min(pool));
            prop_assert!(ids.iter().all(|&id| id < pool));
            prop_assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        }
    }
}
