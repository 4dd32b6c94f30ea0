//! Timers that carry their own deadline.

use std::time::{Duration, Instant};

/// Off, or due at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Timer {
    #[default]
    Off,
    At(Instant),
}

impl Timer {
    /// Due `after` from `now`; off when the clock cannot count that far, which stands for "never".
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
