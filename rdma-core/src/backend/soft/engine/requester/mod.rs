//! The requester: the sending half of a queue pair. Owns the send queue, the outstanding requests and the retries.
//!
//! The transitions are split into groups: [`send`] hands requests out, [`acknowledge`] takes replies, and [`retry`] has
//! the two timers.

mod acknowledge;
mod retry;
mod send;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::effect::{Effect, failed};
use super::keys::{Domain, KeyTable};
use super::sequence;
use crate::backend::interface::{RawCompletion, RawOpcode, RawSend};
use crate::{CompletionStatus, RetryOptions, RnrRetry};

/// The state of a requester.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Before RTS: the queue is empty.
    Unready,
    /// Requests go out as they are posted.
    Sending,
    /// The peer had no receive: nothing goes out before `until`.
    Backoff { until: Instant },
    /// Every request is flushed; the oldest one fails with `status`, if there is one.
    Error { status: Option<CompletionStatus> },
}

/// The attributes that the step to RTS sets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) ack_timeout: Duration,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: RnrRetry,
    pub(crate) max_rd_atomic: u8,
}

impl Limits {
    /// Takes the attributes from the options, within the limits of verbs and of the device.
    pub(crate) fn new(options: &RetryOptions, rd_atomic_max: u8) -> Self {
        Self {
            ack_timeout: options.ack_timeout.duration(),
            retry_cnt: options.retry_cnt.min(7),
            rnr_retry: options.rnr_retry,
            max_rd_atomic: options.max_rd_atomic.min(rd_atomic_max),
        }
    }
}

/// The send queue of a queue pair.
///
/// # Invariants
///
/// `acked <= sent <= sent_max <= queue.len() <= depth`. Oldest first, the queue holds `acked` requests that are
/// carried out and not yet completed, then the outstanding ones up to `sent`, then those that are to be sent. Up to
/// `sent_max` the latter were sent before a rewind, so a late reply may still name them.
#[derive(Debug)]
pub(crate) struct Requester {
    pub(super) state: State,
    queue: VecDeque<RawSend>,
    depth: usize,
    /// The sequence number of the oldest request in the queue.
    first_psn: u32,
    /// The serial of the oldest request in the queue; counts requests and never wraps.
    first_serial: u64,
    acked: usize,
    sent: usize,
    /// Requests that were sent at least once; replies beyond them are invalid.
    sent_max: usize,
    reads_outstanding: u8,
    /// The time at which the acknowledgement timer is due; `None` while it is off.
    ack_timer: Option<Instant>,
    retries_left: u8,
    rnr_retries_left: u8,
    rewound: bool,
    /// The oldest request is a read that was sent again, because its data was lost.
    asked_again: bool,
    limits: Limits,
}

impl Requester {
    pub(crate) fn new(depth: usize) -> Self {
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
            ack_timer: None,
            retries_left: 0,
            rnr_retries_left: 0,
            rewound: false,
            asked_again: false,
            limits: Limits::new(&RetryOptions::default(), 0),
        }
    }

    /// RTR to RTS: the first request carries `psn`.
    pub(crate) fn start(&mut self, psn: u32, limits: Limits) {
        if self.state == State::Unready {
            self.state = State::Sending;
            self.first_psn = psn;
            self.limits = limits;
            self.reset_retries();
        }
    }

    /// Adds a request to the queue, or gives it back when the queue is full.
    pub(crate) fn post(&mut self, send: RawSend) -> Result<(), RawSend> {
        if self.queue.len() >= self.depth {
            return Err(send);
        }
        self.queue.push_back(send);
        Ok(())
    }

    /// Returns the next effect. After every other call the caller must ask until there is none.
    pub(crate) fn poll_effect(&mut self, now: Instant, keys: &KeyTable, domain: Domain) -> Option<Effect> {
        loop {
            if std::mem::take(&mut self.rewound) {
                return Some(Effect::Rewind);
            }
            if self.acked > 0 {
                match self.pop().as_ref().and_then(done) {
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

    /// Removes the oldest request, and moves every count with it.
    fn pop(&mut self) -> Option<RawSend> {
        let send = self.queue.pop_front()?;
        self.first_psn = sequence::add(self.first_psn, 1);
        self.first_serial += 1;
        self.acked = self.acked.saturating_sub(1);
        self.sent = self.sent.saturating_sub(1);
        self.sent_max = self.sent_max.saturating_sub(1);
        Some(send)
    }

    /// Moves to ERR. The oldest request that is not carried out fails with `status`, if there is one; all others are
    /// flushed. Later failures change nothing.
    pub(crate) fn fail(&mut self, status: Option<CompletionStatus>) {
        if !self.is_error() {
            self.state = State::Error { status };
            self.ack_timer = None;
            self.rewound = false;
        }
    }

    /// Removes the oldest request. Returns its failure, which is reported even for an unsignalled request.
    fn next_flushed(&mut self) -> Option<RawCompletion> {
        let send = self.pop()?;
        let status = match &mut self.state {
            State::Error { status } => status.take(),
            State::Unready | State::Sending | State::Backoff { .. } => None,
        };
        Some(failed(send.wr_id, status.unwrap_or(CompletionStatus::WR_FLUSH_ERR)))
    }

    /// The time at which [`handle_timeout`](Self::handle_timeout) must be called.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Sending => self.ack_timer,
            State::Backoff { until } => Some(until),
            State::Unready | State::Error { .. } => None,
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(self.state, State::Error { .. })
    }

    /// The number of requests without a completion.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The serial of the next posted request.
    pub(crate) fn next_serial(&self) -> u64 {
        self.first_serial + self.queue.len() as u64
    }

    /// Whether request `serial` is not carried out yet: only then may the wire use its memory.
    pub(crate) fn holds(&self, serial: u64) -> bool {
        let (oldest, end) = (self.first_serial + self.acked as u64, self.next_serial());
        !self.is_error() && (oldest..end).contains(&serial)
    }

    /// Whether the peer has acknowledged request `serial`, so that it drops a repetition of it.
    pub(crate) fn carried_out(&self, serial: u64) -> bool {
        !self.is_error() && serial < self.first_serial + self.acked as u64
    }

    fn outstanding(&self) -> usize {
        self.sent - self.acked
    }
}

/// The completion of a request that is carried out, if it asks for one.
#[inline]
fn done(send: &RawSend) -> Option<RawCompletion> {
    let byte_len = if send.opcode == RawOpcode::Read { send.len } else { 0 };
    send.signalled.then(|| RawCompletion { wr_id: send.wr_id, byte_len, ..RawCompletion::default() })
}
