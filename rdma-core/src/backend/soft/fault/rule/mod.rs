//! Rules: a kind of fault, the messages it may strike at, and when; and the random numbers that decide.

use std::time::Duration;

use crate::QpNum;

/// A kind of fault.
///
/// A [`Rule`](crate::fault::Rule) injects it; [`FaultPlan`](crate::fault::FaultPlan) has an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The message is lost.
    Drop,
    /// The message arrives later by this time; messages behind it overtake it.
    ///
    /// A process holds back at most 1,024 messages and 64 MiB of payload. Beyond this the oldest message is lost, and
    /// so is a longer one.
    Delay(Duration),
    /// The message arrives after the next one of its queue pair and direction, or 10 ms later if none comes. The
    /// bounds of [`Delay`](Self::Delay) hold.
    Reorder,
    /// A byte of the payload is inverted where it lands. Only messages with a payload count.
    Corrupt,
    /// The responder answers that no receive is posted. Only requests that take a receive count.
    Rnr,
    /// The device dies: it receives and answers nothing any more, as if its process were killed.
    Kill,
    /// The device stops until [`FaultPlan::resume`](super::FaultPlan::resume): it receives and answers nothing
    /// meanwhile, as if its process were stopped.
    Stop,
    /// The port goes down for this time, with `PORT_ERR` and `PORT_ACTIVE` events. No message is carried meanwhile;
    /// queue pairs keep their state.
    FlapPort(Duration),
    /// A deregistration fails with `EBUSY`, and the memory stays registered. Only deregistrations count.
    RefuseDeregistration,
}

/// The messages that a rule looks at.
///
/// [`Rule`](crate::fault::Rule) has it; [`FaultPlan`](crate::fault::FaultPlan) has an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Messages {
    /// Requests and replies.
    #[default]
    All,
    /// Sends, writes and reads that arrive.
    Requests,
    /// Acknowledgements, refusals and read data that arrive.
    Replies,
}

/// A fault and when it strikes; by default at every message.
///
/// ```
/// use rdma_core::fault::{Fault, Messages, Rule};
/// // Of the requests after the first hundred, one in ten is lost, five at most.
/// let rule = Rule::new(Fault::Drop).on(Messages::Requests).after(100).with_probability(0.1).times(5);
/// // The third payload that arrives is corrupted.
/// let third = Rule::new(Fault::Corrupt).nth(3);
/// # let _ = (rule, third);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Rule {
    fault: Fault,
    on: Messages,
    queue_pair: Option<QpNum>,
    probability: f64,
    skip: u64,
    left: u64,
}

impl Rule {
    /// Makes a rule that strikes every time.
    pub fn new(fault: Fault) -> Self {
        Self { fault, on: Messages::All, queue_pair: None, probability: 1.0, skip: 0, left: u64::MAX }
    }

    /// Restricts the rule to these messages.
    pub fn on(mut self, messages: Messages) -> Self {
        self.on = messages;
        self
    }

    /// Restricts the rule to messages that arrive at the queue pair of that number: one path fails, and the device
    /// lives.
    pub fn on_queue_pair(mut self, number: QpNum) -> Self {
        self.queue_pair = Some(number);
        self
    }

    /// Strikes with this probability, between 0 and 1.
    pub fn with_probability(mut self, probability: f64) -> Self {
        self.probability = probability;
        self
    }

    /// Lets the first `count` messages pass that the rule looks at.
    pub fn after(mut self, count: u64) -> Self {
        self.skip = count;
        self
    }

    /// Strikes at most `count` times.
    pub fn times(mut self, count: u64) -> Self {
        self.left = count;
        self
    }

    /// Strikes once, at the `n`th message that the rule looks at, counted from 1.
    pub fn nth(self, n: u64) -> Self {
        self.after(n.saturating_sub(1)).times(1)
    }

    /// Returns the fault, if the rule strikes at `event`.
    pub(super) fn strikes(&mut self, event: &Event, seed: &mut Seed) -> Option<Fault> {
        if self.left == 0 || !self.looks_at(event) {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        if self.probability < 1.0 && !seed.chance(self.probability) {
            return None;
        }
        self.left -= 1;
        Some(self.fault)
    }

    /// Whether the rule counts this event: the fault must be able to strike at it, and the direction must match.
    fn looks_at(&self, event: &Event) -> bool {
        match (self.fault, event) {
            (Fault::RefuseDeregistration, event) => *event == Event::Deregistration,
            (_, Event::Deregistration) => false,
            (fault, Event::Message { queue_pair, is_request, has_payload, takes_receive }) => {
                let direction = match self.on {
                    Messages::All => true,
                    Messages::Requests => *is_request,
                    Messages::Replies => !*is_request,
                };
                direction
                    && self.queue_pair.is_none_or(|wanted| wanted == *queue_pair)
                    && (fault != Fault::Corrupt || *has_payload)
                    && (fault != Fault::Rnr || *takes_receive)
            }
        }
    }
}

/// The event that a rule is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Message { queue_pair: QpNum, is_request: bool, has_payload: bool, takes_receive: bool },
    Deregistration,
}

/// A repeatable stream of random numbers (SplitMix64); the seed decides all of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Seed(u64);

impl Seed {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// True with `probability`, which is taken between 0 and 1.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        // 53 bits make every value of the fraction exact.
        let fraction = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        fraction < probability
    }
}

#[cfg(test)]
mod tests;
