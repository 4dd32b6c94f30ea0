//! [`Deadline`], the type that bounds every wait of the crate.

use std::time::{Duration, Instant};

/// The moment by which a wait ends, with a result or with an error.
///
/// There is no infinite deadline, because a wait without an end turns a dead peer into a hung program.
///
/// ```
/// use std::time::Duration;
/// use rdma_core::Deadline;
/// let deadline = Deadline::after(Duration::from_secs(5));
/// assert!(!deadline.expired());
/// assert!(deadline.remaining() <= Duration::from_secs(5));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(Instant);

impl Deadline {
    /// The longest wait, one year. Longer timeouts are cut to it, because `Instant` may overflow for them.
    const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

    /// Returns the deadline `timeout` from now. More than a year counts as a year.
    #[must_use]
    pub fn after(timeout: Duration) -> Self {
        Self(Instant::now() + timeout.min(Self::LONGEST))
    }

    /// Returns the deadline for waits inside `Drop`: 5 ms, because nobody expects a drop to block.
    pub(crate) fn in_drop() -> Self {
        Self::after(Duration::from_millis(5))
    }

    /// Returns the deadline at `instant`.
    #[must_use]
    pub fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// Returns the moment at which the deadline passes.
    #[must_use]
    pub fn instant(self) -> Instant {
        self.0
    }

    /// Returns the time that is left; zero once the deadline has passed.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Returns whether the deadline has passed.
    #[must_use]
    pub fn expired(self) -> bool {
        self.expired_at(Instant::now())
    }

    /// Returns whether the deadline has passed at `now`, for code that is handed the time instead of reading
    /// a clock.
    #[must_use]
    pub fn expired_at(self, now: Instant) -> bool {
        now >= self.0
    }

    /// Returns the earlier one of both deadlines.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }
}
