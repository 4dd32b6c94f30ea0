//! Timers: a deadline, or none.

use std::time::{Duration, Instant};

/// A timer that is off, or due at an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Timer {
    #[default]
    Off,
    At(Instant),
}

impl Timer {
    /// A timer that is due `after` from `now`; off when the clock cannot represent that, which means never.
    pub(crate) fn after(now: Instant, after: Duration) -> Self {
        now.checked_add(after).map_or(Self::Off, Self::At)
    }

    pub(crate) fn due(self, now: Instant) -> bool {
        matches!(self, Self::At(at) if now >= at)
    }

    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Off => None,
            Self::At(at) => Some(at),
        }
    }
}
