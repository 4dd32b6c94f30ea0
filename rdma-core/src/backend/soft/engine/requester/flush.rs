//! The end of a requester: everything left completes, in order.

use super::super::timer::Timer;
use super::{Requester, State};
use crate::CompletionStatus;
use crate::backend::interface::RawCompletion;

impl Requester {
    /// Moves to ERR. The oldest request that was not carried out gets `status`, if there is
    /// one and this is the first failure; all others are flushed.
    pub(crate) fn fail(&mut self, status: Option<CompletionStatus>) {
        if !self.is_error() {
            self.state = State::Error { status };
            self.ack_timer = Timer::Off;
            self.rewound = false;
        }
    }

    /// The oldest request and its failure; signalled or not, it is told.
    pub(super) fn next_flushed(&mut self) -> Option<RawCompletion> {
        let send = self.pop()?;
        let status = match &mut self.state {
            State::Error { status } => status.take(),
            State::Unready | State::Sending | State::Backoff { .. } => None,
        };
        let status = status.unwrap_or(CompletionStatus::WR_FLUSH_ERR).0;
        Some(RawCompletion { wr_id: send.wr_id, status, ..RawCompletion::default() })
    }
}
