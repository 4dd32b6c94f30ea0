//! Sending again: after a lost message, and after a peer had no receive.

use std::time::Instant;

use super::super::timer::Timer;
use super::{Requester, State};
use crate::{CompletionStatus, RnrRetry, RnrTimer};

impl Requester {
    /// A timer may be due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        match self.state {
            State::Backoff { until } if now >= until => self.state = State::Sending,
            State::Sending if self.ack_timer.due(now) => self.retry(),
            _ => {}
        }
    }

    /// Everything outstanding goes out again, or the oldest of it fails.
    pub(super) fn retry(&mut self) {
        match self.retries_left.checked_sub(1) {
            Some(left) => {
                self.retries_left = left;
                self.rewind();
            }
            None => self.fail(Some(CompletionStatus::RETRY_EXC_ERR)),
        }
    }

    /// The peer had no receive for the oldest outstanding request.
    pub(super) fn back_off(&mut self, now: Instant, timer: u8) {
        if self.limits.rnr_retry != RnrRetry::Unlimited {
            let Some(left) = self.rnr_retries_left.checked_sub(1) else {
                self.fail(Some(CompletionStatus::RNR_RETRY_EXC_ERR));
                return;
            };
            self.rnr_retries_left = left;
        }
        // It answered: that it is there is not in doubt.
        self.retries_left = self.limits.retry_cnt;
        self.rewind();
        self.state = State::Backoff { until: now + RnrTimer::new(timer).duration() };
    }

    /// Everything outstanding goes out again, on another way or one that is better known: it counts for no retry. The
    /// timer runs on, so that who has this done again and again does not put off the end.
    pub(crate) fn resend(&mut self) {
        if self.state == State::Sending && self.outstanding() > 0 {
            let ack_timer = self.ack_timer;
            self.rewind();
            self.ack_timer = ack_timer;
        }
    }

    pub(super) fn reset_retries(&mut self) {
        self.retries_left = self.limits.retry_cnt;
        self.rnr_retries_left = self.limits.rnr_retry.code();
    }

    /// Whether nothing is different from after a [`reset`](Self::reset_retries).
    pub(super) fn has_all_retries(&self) -> bool {
        self.retries_left == self.limits.retry_cnt && self.rnr_retries_left == self.limits.rnr_retry.code()
    }

    fn rewind(&mut self) {
        self.sent = self.acked;
        self.reads_outstanding = 0;
        self.ack_timer = Timer::Off;
        self.rewound = true;
    }
}
