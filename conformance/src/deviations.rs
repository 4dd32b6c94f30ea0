//! What kernels and drivers are known to do otherwise than the suite asks.
//!
//! Each entry says why, cites where that can be read, and comes with a case of its own that
//! asserts what happens instead. The software device has none.

use crate::{CaseResult, Lab};

/// A known deviation.
pub struct Deviation {
    /// The case that does not hold, by name.
    pub case: &'static str,
    /// Why, and the source.
    pub why: &'static str,
    /// What holds instead.
    pub instead: fn(&Lab) -> CaseResult,
}

/// The deviations known of the lab's device.
#[must_use]
pub fn of(lab: &Lab) -> Vec<Deviation> {
    if lab.device.is_soft() {
        return Vec::new();
    }
    if lab.device.name().starts_with("rxe") { rxe() } else { Vec::new() }
}

fn rxe() -> Vec<Deviation> {
    Vec::new()
}
