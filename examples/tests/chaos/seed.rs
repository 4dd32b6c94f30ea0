//! Random choices that can be had again.

use std::time::Duration;

/// SplitMix64: any seed will do, and rounds have their own.
pub struct Random {
    seed: u64,
    state: u64,
}

impl Random {
    /// The choices of round `round` of the scenario called `name`.
    pub fn of(name: &str, round: u32) -> Self {
        let seed = match std::env::var("SOAK_SEED") {
            Ok(seed) => seed.parse().expect("SOAK_SEED is a number"),
            Err(_) => std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64),
        };
        // FNV-1a over the name, so that scenarios differ.
        let name = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self { seed, state: seed ^ name ^ (u64::from(round) << 48) }
    }

    /// The number that gives the same choices again.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..bound`.
    pub fn below(&mut self, bound: u32) -> u32 {
        (self.next() % u64::from(bound.max(1))) as u32
    }

    /// A moment of the next `span`.
    pub fn within(&mut self, span: Duration) -> Duration {
        Duration::from_micros(self.next() % (span.as_micros() as u64).max(1))
    }
}
