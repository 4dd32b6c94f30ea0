//! The sending half of a queue pair: its send queue, what of it is outstanding, and its retries.
//!
//! Split by group of transitions: [`send`] hands requests out, [`acknowledge`] takes replies,
//! [`retry`] the two timers, [`flush`] the end, and [`bypass`] completes requests without queueing them.

mod acknowledge;
mod bypass;
mod flush;
mod retry;
mod send;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

pub(crate) use acknowledge::Landing;

use super::effect::Effect;
use super::keys::{Domain, KeyTable};
use super::timer::Timer;
use crate::backend::interface::{RawCompletion, RawOpcode, RawSend};
use crate::{CompletionStatus, RetryOptions, RnrRetry};

/// Where a requester stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Before RTS: nothing is in the queue.
    Unready,
    /// Requests go out as they are posted.
    Sending,
    /// The peer had no receive: nothing goes out before then.
    Backoff { until: Instant },
    /// Everything is flushed; the first with that status, if there is one.
    Error { status: Option<CompletionStatus> },
}

/// What RTR to RTS set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) ack_timeout: Duration,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: RnrRetry,
    pub(crate) max_rd_atomic: u8,
}

impl Limits {
    pub(crate) fn new(options: &RetryOptions, rd_atomic_max: u8) -> Self {
        Self {
            ack_timeout: options.ack_timeout.duration(),
            retry_cnt: options.retry_cnt.min(7),
            rnr_retry: options.rnr_retry,
            max_rd_atomic: options.max_rd_atomic.min(rd_atomic_max),
        }
    }
}

/// See the module.
///
/// # Invariants
///
/// `acked <= sent <= sent_max <= queue.len() <= depth`: the queue is, oldest first, what is
/// carried out and not yet told, what is outstanding, and what was not sent (since a rewind).
#[derive(Debug)]
pub(crate) struct Requester {
    state: State,
    queue: VecDeque<RawSend>,
    depth: usize,
    /// Of the oldest in the queue.
    first_psn: u32,
    /// Of the oldest in the queue; counts requests and never wraps.
    first_serial: u64,
    acked: usize,
    sent: usize,
    /// As far as anything was ever sent; replies beyond it are nonsense.
    sent_max: usize,
    reads_outstanding: u8,
    ack_timer: Timer,
    retries_left: u8,
    rnr_retries_left: u8,
    rewound: bool,
    /// The oldest is a read that was asked for again since its answer is missing.
    asked_again: bool,
    limits: Limits,
}

impl Requester {
    pub(crate) fn new(depth: usize) -> Self {
        let limits = Limits {
            ack_timeout: Duration::MAX,
            retry_cnt: 0,
            rnr_retry: RnrRetry::Times(0),
            max_rd_atomic: 0,
        };
        Self {
            state: State::Unready,
            queue: VecDeque::with_capacity(depth),
            depth,
            first_psn: 0,
            first_serial: 0,
            acked: 0,
            sent: 0,
            sent_max: 0,
            reads_outstanding: 0,
            ack_timer: Timer::Off,
            retries_left: 0,
            rnr_retries_left: 0,
            rewound: false,
            asked_again: false,
            limits,
        }
    }

    /// RTR to RTS: the first request will carry `psn`.
    pub(crate) fn start(&mut self, psn: u32, limits: Limits) {
        if self.state == State::Unready {
            self.state = State::Sending;
            self.first_psn = psn;
            self.limits = limits;
            self.reset_retries();
        }
    }

    /// Puts a request into the queue; gives it back when the queue is full.
    pub(crate) fn post(&mut self, send: RawSend) -> Result<(), RawSend> {
        if self.queue.len() >= self.depth {
            return Err(send);
        }
        self.queue.push_back(send);
        Ok(())
    }

    /// The next thing to be done. To be asked until it has none, after every other call.
    pub(crate) fn poll_effect(&mut self, now: Instant, keys: &KeyTable, domain: Domain) -> Option<Effect> {
        loop {
            if std::mem::take(&mut self.rewound) {
                return Some(Effect::Rewind);
            }
            if self.acked > 0 {
                match self.retire() {
                    Some(done) => return Some(Effect::Complete(done)),
                    None => continue,
                }
            }
            return match self.state {
                State::Unready | State::Backoff { .. } => None,
                State::Error { .. } => self.next_flushed().map(Effect::Complete),
                State::Sending => match self.next_request(now, keys, domain) {
                    Ok(effect) => effect,
                    Err(status) => {
                        self.fail(Some(status));
                        continue;
                    }
                },
            };
        }
    }

    /// Takes the oldest out, which was carried out; its completion, if it is to have one.
    fn retire(&mut self) -> Option<RawCompletion> {
        self.pop().as_ref().and_then(done)
    }

    fn pop(&mut self) -> Option<RawSend> {
        let send = self.queue.pop_front()?;
        self.first_psn = super::sequence::add(self.first_psn, 1);
        self.first_serial += 1;
        self.acked = self.acked.saturating_sub(1);
        self.sent = self.sent.saturating_sub(1);
        self.sent_max = self.sent_max.saturating_sub(1);
        Some(send)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Sending => self.ack_timer.deadline(),
            State::Backoff { until } => Some(until),
            State::Unready | State::Error { .. } => None,
        }
    }

    #[cfg(test)]
    pub(super) fn state(&self) -> State {
        self.state
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(self.state, State::Error { .. })
    }

    /// Requests that have no completion yet.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The serial that the next posted request gets.
    pub(crate) fn next_serial(&self) -> u64 {
        self.first_serial + self.queue.len() as u64
    }

    /// Whether request `serial` is still waiting to be carried out: its memory is then the wire's to use.
    pub(crate) fn holds(&self, serial: u64) -> bool {
        let (oldest, end) = (self.first_serial + self.acked as u64, self.next_serial());
        !self.is_error() && (oldest..end).contains(&serial)
    }

    /// Whether the peer has acknowledged request `serial`: it drops what it hears of it again.
    pub(crate) fn carried_out(&self, serial: u64) -> bool {
        !self.is_error() && serial < self.first_serial + self.acked as u64
    }

    fn outstanding(&self) -> usize {
        self.sent - self.acked
    }
}

/// The completion of a request that was carried out, if it is to have one.
#[inline]
fn done(send: &RawSend) -> Option<RawCompletion> {
    let byte_len = if send.opcode == RawOpcode::Read { send.len } else { 0 };
    send.signalled.then(|| RawCompletion { wr_id: send.wr_id, byte_len, ..RawCompletion::default() })
}
