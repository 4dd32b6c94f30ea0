//! Sample of the cases of an exhaustive test: all in a soak (`SOAK=full`, set by `cargo xtask soak exhaustive`), a few
//! otherwise, because all of them together take minutes.

/// Whether this is a soak.
pub(crate) fn is_soak() -> bool {
    std::env::var("SOAK").is_ok_and(|soak| soak == "full")
}

/// Counts the cases of one test.
pub(crate) struct Sample {
    step: usize,
    seen: usize,
}

impl Sample {
    /// Picks one case in `step`, or all in a soak. Choose a `step` without a factor in common with the lengths of the
    /// test's loops, so that each value of each loop comes up.
    pub(crate) fn one_of(step: usize) -> Self {
        Self { step: if is_soak() { 1 } else { step }, seen: 0 }
    }

    /// Whether the next case is left to a soak.
    pub(crate) fn leaves_out(&mut self) -> bool {
        self.seen += 1;
        !(self.seen - 1).is_multiple_of(self.step)
    }
}
