//! Chance that can be repeated: SplitMix64.

/// A stream of numbers that its seed decides.
#[derive(Debug, Clone)]
pub(super) struct Seed(u64);

impl Seed {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// True with `probability`, which is taken between 0 and 1.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        // 53 bits make every value of the fraction exact.
        let fraction = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        fraction < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sequence_comes_out() {
        let mut seed = Seed::new(1234567);
        assert_eq!([seed.next(), seed.next()], [6457827717110365317, 3203168211198807973]);
    }

    #[test]
    fn chance_keeps_its_bounds_and_its_rate() {
        let mut seed = Seed::new(1);
        assert!((0..1000).all(|_| !seed.chance(0.0) && seed.chance(1.0)));
        let hits = (0..10_000).filter(|_| seed.chance(0.25)).count();
        assert!((2300..2700).contains(&hits), "{hits}");
    }
}
