//! Reproducible random choices: a test prints its seed, and `SOAK_SEED` sets it again.

/// SplitMix64, which works with any seed.
pub struct Random(u64);

/// The seed of this run, which it prints.
pub fn seed() -> u64 {
    let seed = match std::env::var("SOAK_SEED") {
        Ok(seed) => seed.parse().expect("SOAK_SEED is a number"),
        Err(_) => std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64),
    };
    println!("SOAK_SEED={seed}");
    seed
}

impl Random {
    pub fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// A number in `0..bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }

    /// True one time in `times`.
    pub fn is_one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// An element of `of`.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Puts elements in random order.
    pub fn shuffle<T>(&mut self, of: &mut [T]) {
        for at in (1..of.len()).rev() {
            of.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}
