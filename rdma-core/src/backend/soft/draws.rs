//! Numbers from the system's random source, some at a time: a call for each is most of what a registration costs.

use std::fmt;

/// Drawn at a time.
const BATCH: usize = 32;

/// See the module.
#[derive(Default)]
pub(super) struct Draws {
    drawn: [u32; BATCH],
    left: usize,
    /// A multiplier and an addend.
    walk: Option<[u32; 2]>,
}

impl Draws {
    /// One that nobody was given.
    ///
    /// # Errors
    ///
    /// When the system has no random source.
    pub(super) fn next(&mut self) -> Result<u32, getrandom::Error> {
        if self.left == 0 {
            let mut bytes = [0; BATCH * size_of::<u32>()];
            getrandom::fill(&mut bytes)?;
            for (number, bytes) in self.drawn.iter_mut().zip(bytes.as_chunks().0) {
                *number = u32::from_ne_bytes(*bytes);
            }
            self.left = BATCH;
        }
        self.left -= 1;
        // It stays nowhere.
        Ok(std::mem::take(&mut self.drawn[self.left]))
    }
}

impl Draws {
    /// One that differs from `last` in all but the lowest bits. As long as one follows the other none comes twice before each
    /// has come, in an order that only this device knows.
    ///
    /// # Errors
    ///
    /// As for [`next`](Self::next).
    pub(super) fn after(&mut self, last: u32, same_bits: u32) -> Result<u32, getrandom::Error> {
        let [multiplier, addend] = match self.walk {
            Some(walk) => walk,
            // Hull and Dobell: an odd addend, and a multiplier of one more than a multiple of 4, come by all numbers.
            None => {
                let drawn = [self.next()? & !3 | 1, self.next()? | 1];
                *self.walk.insert(drawn)
            }
        };
        let changed = (last >> same_bits).wrapping_mul(multiplier).wrapping_add(addend);
        let same = last & ((1 << same_bits) - 1);
        Ok(changed << same_bits | same)
    }
}

impl fmt::Debug for Draws {
    /// The numbers are nobody's to know.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draws").field("left", &self.left).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn they_are_all_different_and_kept_nowhere() {
        let mut draws = Draws::default();
        let drawn: HashSet<u32> = (0..20 * BATCH).map(|_| draws.next().unwrap()).collect();
        // Two that are the same are rare, of so few.
        assert!(drawn.len() + 1 >= 20 * BATCH);
        assert_eq!((draws.left, draws.drawn), (0, [0; BATCH]));
    }

    #[test]
    fn what_follows_has_the_same_place_and_comes_again_only_after_all_others() {
        let mut draws = Draws::default();
        let first = draws.next().unwrap();
        let mut last = first;
        let walked: HashSet<u32> = (0..1 << 12)
            .map(|_| {
                last = draws.after(last, 20).unwrap();
                assert_eq!(last & 0xf_ffff, first & 0xf_ffff);
                last
            })
            .collect();
        assert_eq!((walked.len(), last), (1 << 12, first));
    }
}
