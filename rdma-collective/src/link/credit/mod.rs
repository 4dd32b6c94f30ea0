//! Credits: the flow control that keeps a receive posted for every message that arrives.
//!
//! Every message that takes a receive costs a credit: control messages, and writes with an immediate. A receiver that
//! has consumed half of its grant returns the credits with a [`Credit`](super::imm::Imm::Credit) immediate.
//!
//! Credit immediates take receives too, but must not cost a credit: two sides that have no credits left could then
//! never return any. So [`RESERVED`] receives are posted beyond the grant. Two are enough: each immediate returns at
//! least half a grant, and at most one grant of messages is consumed but not returned, so at most two are under way.
//! Without this, a message could find no receive, and the queue pair would fail or retry (RNR).

use super::imm::{COUNT_MASK, advanced};

/// Receives posted beyond the grant, for the immediates that return credits.
pub(crate) const RESERVED: u32 = 2;

/// The credits of one lane, in both directions. The counters run since the lane began.
#[derive(Debug, Clone)]
pub(crate) struct Credits {
    /// Messages that the peer granted to this side.
    granted: u32,
    /// Messages sent to the peer.
    sent: u64,
    /// Messages that the peer has consumed, as it reported.
    returned: u64,
    /// Messages that this side granted to the peer.
    own: u32,
    /// Messages from the peer that were consumed; their receives are posted again, or will be before the report.
    consumed: u64,
    /// The value of `consumed` that was last reported to the peer.
    told: u64,
}

/// The error of a peer that returned more credits than it was sent messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyReturned;

impl Credits {
    /// The credits of a new lane: `granted` by the peer, `own` by this side; neither is 0.
    pub(crate) fn new(granted: u32, own: u32) -> Self {
        Self { granted, sent: 0, returned: 0, own, consumed: 0, told: 0 }
    }

    /// The number of messages that may be sent now.
    pub(crate) fn available(&self) -> u32 {
        // Never negative: `take` sends only within the grant, and `returned` never exceeds `sent`.
        self.granted - (self.sent - self.returned) as u32
    }

    /// The number of messages that were sent since the lane began.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// The number of messages from the peer that were consumed since the lane began.
    pub(crate) fn taken(&self) -> u64 {
        self.consumed
    }

    /// Takes one credit for a message; `false` if there is none.
    pub(crate) fn take(&mut self) -> bool {
        let available = self.available() > 0;
        self.sent += u64::from(available);
        available
    }

    /// Notes the peer's report: the number of messages that it has consumed since the lane began.
    pub(crate) fn returned(&mut self, count: u32) -> Result<(), TooManyReturned> {
        let ahead = advanced(self.returned, count, self.sent - self.returned).ok_or(TooManyReturned)?;
        self.returned += ahead;
        Ok(())
    }

    /// Notes that a message was consumed, and that its receive is posted again (at the latest by the next flush).
    pub(crate) fn consumed(&mut self) {
        self.consumed += 1;
    }

    /// The count to report to the peer, once half of the grant was consumed since the last report.
    pub(crate) fn due(&self) -> Option<u32> {
        let due = self.consumed - self.told >= u64::from(self.own.div_ceil(2));
        due.then_some(self.consumed as u32 & COUNT_MASK)
    }

    /// Notes that the count that was due has been sent.
    pub(crate) fn told(&mut self) {
        self.told = self.consumed;
    }
}

#[cfg(test)]
mod tests;
