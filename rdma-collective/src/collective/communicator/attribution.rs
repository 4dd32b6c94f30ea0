//! Attribution: which rank is to blame when a lane or an operation ends.
//!
//! Normally that is the peer whose lane has ended. There is one exception: a process that did not run for a while (it
//! was stopped, or its machine was paused) finds that its peers have gone. They had to give it up, so the stopped
//! rank is to blame, and not the peers. It gets [`Fenced`](CollectiveError::Fenced).

use std::time::Duration;

use super::Lost;
use crate::collective::operation::Abort;
use crate::collective::{AbortReason, CollectiveError, Interrupted};

impl Lost {
    /// The rank to blame, from the view of rank `own`.
    pub(crate) fn culprit(&self, own: u32) -> u32 {
        if self.away.is_some() { own } else { self.rank }
    }

    /// The error for the caller of this rank.
    pub(crate) fn into_error(self, interrupted: Option<Interrupted>) -> CollectiveError {
        let Self { rank, lane, cause, away } = self;
        match away {
            Some(_) => CollectiveError::Fenced { away, interrupted },
            None => CollectiveError::PeerFailed { rank, lane, cause, interrupted },
        }
    }
}

impl Abort {
    /// The error for the caller of rank `own`, which did not run for `away` lately, if at all.
    pub(crate) fn into_error(
        self,
        own: u32,
        away: Option<Duration>,
        interrupted: Option<Interrupted>,
    ) -> CollectiveError {
        let Self { culprit, reporter, reason, .. } = self;
        // A peer's report that this very rank is lost means that this rank did not answer in time. A missed deadline
        // alone does not say so: it counts only if this process did not run.
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
