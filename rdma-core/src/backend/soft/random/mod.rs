//! Random numbers from the system, drawn in batches: one system call a number would be most of the cost of a
//! registration.

/// Numbers drawn in one system call.
const BATCH: usize = 32;

/// A batch of random numbers, each of which is given out once.
#[derive(Default)]
pub(super) struct RandomPool {
    drawn: [u32; BATCH],
    left: usize,
}

impl RandomPool {
    /// Returns a fresh random number.
    ///
    /// # Errors
    ///
    /// The system has no random source.
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
        // Keys are secrets, so no copy of a used number stays in memory.
        Ok(std::mem::take(&mut self.drawn[self.left]))
    }

    /// Returns a fresh random number whose lowest `same_bits` bits are those of `last`; never `last` itself.
    ///
    /// # Errors
    ///
    /// The system has no random source.
    pub(super) fn next_beside(&mut self, last: u32, same_bits: u32) -> Result<u32, getrandom::Error> {
        let same = (1 << same_bits) - 1;
        loop {
            let drawn = self.next()? & !same | last & same;
            if drawn != last {
                return Ok(drawn);
            }
        }
    }
}

#[cfg(test)]
mod tests;
