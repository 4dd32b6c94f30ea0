//! The one type that bounds every wait.

use std::time::{Duration, Instant};

/// The moment by which a wait ends, with an answer or with an error.
///
/// There is no "never": whoever waits says how long it may take.
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
    /// Longest wait that can be asked for, about a year: what a clock cannot add saturates.
    const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

    /// The deadline `timeout` from now; one beyond a year is taken as a year.
    #[must_use]
    pub fn after(timeout: Duration) -> Self {
        Self(Instant::now() + timeout.min(Self::LONGEST))
    }

    /// For what is ended by being dropped, which nobody expects to wait.
    pub(crate) fn in_drop() -> Self {
        Self::after(Duration::from_millis(5))
    }

    /// The deadline at `instant`.
    #[must_use]
    pub fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// The moment itself.
    #[must_use]
    pub fn instant(self) -> Instant {
        self.0
    }

    /// What is left of it now; zero once it has passed.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether it has passed.
    #[must_use]
    pub fn expired(self) -> bool {
        self.expired_at(Instant::now())
    }

    /// Whether it has passed at `now`, for code that is handed the time.
    #[must_use]
    pub fn expired_at(self, now: Instant) -> bool {
        now >= self.0
    }

    /// The earlier of both.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }
}
