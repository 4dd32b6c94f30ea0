//! Sample of the cases of an exhaustive test: all of them in a soak (`SOAK=full`, which `cargo xtask soak exhaustive` sets),
//! every few otherwise, because all of them together take minutes.

/// Counts the cases of one test.
pub(crate) struct Sample {
    step: usize,
    seen: usize,
}

impl Sample {
    /// One case of `step`, or all in a soak. A `step` that has no factor in common with the lengths of the test's loops
    /// has each value of each loop come up.
    pub(crate) fn one_of(step: usize) -> Self {
        let is_soak = std::env::var("SOAK").is_ok_and(|soak| soak == "full");
        Self { step: if is_soak { 1 } else { step }, seen: 0 }
    }

    /// Whether the next case is left to a soak.
    pub(crate) fn leaves_out(&mut self) -> bool {
        self.seen += 1;
        !(self.seen - 1).is_multiple_of(self.step)
    }
}
