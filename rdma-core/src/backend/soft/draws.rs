//! Numbers from the system's random source, some at a time: a call for each is most of what a registration costs.

use std::fmt;

/// Drawn at a time.
const BATCH: usize = 32;

/// See the module.
#[derive(Default)]
pub(super) struct Draws {
    drawn: [u32; BATCH],
    left: usize,
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
}
