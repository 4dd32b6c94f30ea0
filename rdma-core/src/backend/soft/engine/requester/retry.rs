//! Sending again: after a lost message, after a peer had no receive, and after a change of the wire.

use std::time::Instant;

use super::{Requester, State};
use crate::{CompletionStatus, RnrRetry, RnrTimer};

impl Requester {
    /// Handles the timer that is due, if one is.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        match self.state {
            State::Backoff { until } if now >= until => self.state = State::Sending,
            State::Sending if self.ack_timer.is_some_and(|due| now >= due) => self.retry(),
            _ => {}
        }
    }

    /// Starts the acknowledgement timer. It stays off when the clock cannot represent the time, which means never.
    pub(super) fn start_ack_timer(&mut self, now: Instant) {
        self.ack_timer = now.checked_add(self.limits.ack_timeout);
    }

    /// Sends every outstanding request again, or fails the oldest when no retry is left.
    pub(super) fn retry(&mut self) {
        match self.retries_left.checked_sub(1) {
            Some(left) => {
                self.retries_left = left;
                self.rewind();
            }
            None => self.fail(Some(CompletionStatus::RETRY_EXC_ERR)),
        }
    }

    /// Waits, because the peer had no receive for the oldest outstanding request.
    pub(super) fn back_off(&mut self, now: Instant, timer: u8) {
        if self.limits.rnr_retry != RnrRetry::Unlimited {
            let Some(left) = self.rnr_retries_left.checked_sub(1) else {
                self.fail(Some(CompletionStatus::RNR_RETRY_EXC_ERR));
                return;
            };
            self.rnr_retries_left = left;
        }
        // The peer answered, so it is alive: the other retries start over.
        self.retries_left = self.limits.retry_cnt;
        self.rewind();
        self.state = State::Backoff { until: now + RnrTimer::new(timer).duration() };
    }

    /// Sends every outstanding request again, because the wire has changed or knows more. No retry is used up.
    ///
    /// The timer runs on: otherwise a peer that causes this again and again would put the timeout off for ever.
    pub(crate) fn resend(&mut self) {
        if self.state == State::Sending && self.outstanding() > 0 {
            let ack_timer = self.ack_timer;
            self.rewind();
            self.ack_timer = ack_timer;
        }
    }

    /// Gives all retries back, because the peer has carried out a request.
    pub(super) fn reset_retries(&mut self) {
        self.retries_left = self.limits.retry_cnt;
        self.rnr_retries_left = self.limits.rnr_retry.code();
    }

    /// Whether all retries are left, as after [`reset_retries`](Self::reset_retries).
    pub(super) fn has_all_retries(&self) -> bool {
        self.retries_left == self.limits.retry_cnt && self.rnr_retries_left == self.limits.rnr_retry.code()
    }

    /// Goes back to the oldest request that is not carried out; the wire is told by
    /// [`Effect::Rewind`](super::super::effect::Effect).
    fn rewind(&mut self) {
        self.sent = self.acked;
        self.reads_outstanding = 0;
        self.ack_timer = None;
        self.rewound = true;
    }
}
