//! Whose fault an end is, in an operation and between two: what a rank finds ended after it did not run for a while has
//! ended because of that, and is nobody else's loss.

use std::time::Duration;

use super::Lost;
use crate::collective::operation::Abort;
use crate::collective::{AbortReason, CollectiveError, Interrupted};

impl Lost {
    /// The rank at fault, as `own` finds it.
    pub(crate) fn culprit(&self, own: u32) -> u32 {
        if self.away.is_some() { own } else { self.rank }
    }

    /// What the caller is told.
    pub(crate) fn into_error(self, interrupted: Option<Interrupted>) -> CollectiveError {
        let Self { rank, lane, cause, away } = self;
        match away {
            Some(_) => CollectiveError::Fenced { away, interrupted },
            None => CollectiveError::PeerFailed { rank, lane, cause, interrupted },
        }
    }
}

impl Abort {
    /// What the caller is told on rank `own`, which was `away` of late.
    pub(crate) fn into_error(
        self,
        own: u32,
        away: Option<Duration>,
        interrupted: Option<Interrupted>,
    ) -> CollectiveError {
        let Self { culprit, reporter, reason, .. } = self;
        let lost = match reason {
            AbortReason::PeerFailed => true,
            AbortReason::DeadlineExceeded => away.is_some(),
            _ => false,
        };
        if lost && culprit == own {
            CollectiveError::Fenced { away, interrupted }
        } else {
            CollectiveError::Aborted { culprit, reporter, reason, interrupted }
        }
    }
}
