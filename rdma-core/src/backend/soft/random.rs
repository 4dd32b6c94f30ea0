//! Numbers from the system's random source, some at a time: a call for each is most of what a registration costs.

use std::fmt;

/// Drawn at a time.
const BATCH: usize = 32;

/// See the module.
#[derive(Default)]
pub(super) struct RandomPool {
    drawn: [u32; BATCH],
    left: usize,
}

impl RandomPool {
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

impl RandomPool {
    /// One that nobody was given but for the lowest bits, which are those of `last`; never `last` itself.
    ///
    /// # Errors
    ///
    /// As for [`next`](Self::next).
    pub(super) fn after(&mut self, last: u32, same_bits: u32) -> Result<u32, getrandom::Error> {
        let same = (1 << same_bits) - 1;
        loop {
            let drawn = self.next()? & !same | last & same;
            if drawn != last {
                return Ok(drawn);
            }
        }
    }
}

impl fmt::Debug for RandomPool {
    /// The numbers are nobody's to know.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RandomPool").field("left", &self.left).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn they_are_all_different_and_kept_nowhere() {
        let mut draws = RandomPool::default();
        let drawn: HashSet<u32> = (0..20 * BATCH).map(|_| draws.next().unwrap()).collect();
        // Two that are the same are rare, of so few.
        assert!(drawn.len() + 1 >= 20 * BATCH);
        assert_eq!((draws.left, draws.drawn), (0, [0; BATCH]));
    }

    #[test]
    fn what_follows_has_the_same_place_and_is_another() {
        let mut draws = RandomPool::default();
        let mut last = draws.next().unwrap();
        for _ in 0..20 * BATCH {
            // Of four that there are it would be the same one soon.
            let next = draws.after(last, 30).unwrap();
            assert_eq!(next & 0x3fff_ffff, last & 0x3fff_ffff);
            assert_ne!(next, last);
            last = next;
        }
    }
}
