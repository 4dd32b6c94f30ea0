//! Reproducible random choices: a failure prints its seed, and `SOAK_SEED` sets it again.

use std::time::Duration;

/// SplitMix64, which works with any seed.
pub struct Random {
    seed: u64,
    state: u64,
}

impl Random {
    pub fn new() -> Self {
        let seed = match std::env::var("SOAK_SEED") {
            Ok(seed) => seed.parse().expect("SOAK_SEED is a number"),
            Err(_) => std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64),
        };
        Self::of(seed)
    }

    pub fn of(seed: u64) -> Self {
        Self { seed, state: seed }
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns a number in `0..bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound.max(1) as u64) as usize
    }

    /// Returns a random part of `span`.
    pub fn within(&mut self, span: Duration) -> Duration {
        Duration::from_micros(self.below(span.as_micros() as usize) as u64)
    }
}

/// Number of repetitions: `full` in a soak, a twentieth of it otherwise.
pub fn count(full: u32) -> u32 {
    if std::env::var("SOAK").is_ok_and(|soak| soak == "full") { full } else { full / 20 }
}
