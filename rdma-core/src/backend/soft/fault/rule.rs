//! One kind of fault, and when it strikes.

use std::time::Duration;

use super::seed::Seed;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The message is lost.
    Drop,
    /// The message comes that much later; those behind it overtake it. A process holds 64 MiB of
    /// payload back at most: beyond, the oldest is lost, and what is longer by itself.
    Delay(Duration),
    /// The message comes after the next one of its queue pair and direction, or 10 ms later. The
    /// bound of [`Delay`](Self::Delay) holds.
    Reorder,
    /// One byte of the payload is flipped where it lands. Only messages with a payload count.
    Corrupt,
    /// The requester is told that no receive is posted. Only requests that take one count.
    Rnr,
    /// The device dies: it neither answers nor hears, for ever. To its peers it is a killed peer.
    Kill,
    /// The device stops, until [`FaultPlan::resume`](super::FaultPlan::resume): it neither
    /// answers nor hears. To its peers it is a stopped peer.
    Stop,
    /// The port goes down for that long, with `PORT_ERR` and `PORT_ACTIVE` events. Nothing is
    /// carried meanwhile; queue pairs are left alone.
    FlapPort(Duration),
    /// A deregistration fails, and the memory stays registered. Only deregistrations count.
    RefuseDeregistration,
}

/// Which messages a rule looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Messages {
    /// Both.
    #[default]
    All,
    /// Sends, writes and reads that arrive.
    Requests,
    /// Acknowledgements, refusals and read data that arrive.
    Replies,
}

/// A fault, and when it strikes: by default at every message.
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
    probability: f64,
    skip: u64,
    left: u64,
}

impl Rule {
    /// A rule that strikes every time.
    pub fn new(fault: Fault) -> Self {
        Self { fault, on: Messages::All, probability: 1.0, skip: 0, left: u64::MAX }
    }

    /// Looks at those messages only.
    pub fn on(mut self, messages: Messages) -> Self {
        self.on = messages;
        self
    }

    /// Strikes with `probability`, taken between 0 and 1.
    pub fn with_probability(mut self, probability: f64) -> Self {
        self.probability = probability;
        self
    }

    /// Lets the first `count` that it looks at pass.
    pub fn after(mut self, count: u64) -> Self {
        self.skip = count;
        self
    }

    /// Strikes at most `count` times.
    pub fn times(mut self, count: u64) -> Self {
        self.left = count;
        self
    }

    /// Strikes once, at the `n`th that it looks at, counted from 1.
    pub fn nth(self, n: u64) -> Self {
        self.after(n.saturating_sub(1)).times(1)
    }

    /// Whether it strikes at `event`.
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

    fn looks_at(&self, event: &Event) -> bool {
        match (self.fault, event) {
            (Fault::RefuseDeregistration, event) => *event == Event::Deregistration,
            (_, Event::Deregistration) => false,
            (fault, Event::Message { is_request, has_payload, takes_receive }) => {
                let direction = match self.on {
                    Messages::All => true,
                    Messages::Requests => *is_request,
                    Messages::Replies => !*is_request,
                };
                direction
                    && (fault != Fault::Corrupt || *has_payload)
                    && (fault != Fault::Rnr || *takes_receive)
            }
        }
    }
}

/// What a rule is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Message { is_request: bool, has_payload: bool, takes_receive: bool },
    Deregistration,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strikes(mut rule: Rule, event: Event, count: usize) -> Vec<usize> {
        let mut seed = Seed::new(3);
        (1..=count).filter(|_| true).filter(|_| rule.strikes(&event, &mut seed).is_some()).collect()
    }

    const REQUEST: Event = Event::Message { is_request: true, has_payload: true, takes_receive: false };
    const REPLY: Event = Event::Message { is_request: false, has_payload: false, takes_receive: false };

    #[test]
    fn after_times_and_nth_count_from_one() {
        assert_eq!(strikes(Rule::new(Fault::Drop), REQUEST, 3), [1, 2, 3]);
        assert_eq!(strikes(Rule::new(Fault::Drop).after(2).times(2), REQUEST, 9), [3, 4]);
        assert_eq!(strikes(Rule::new(Fault::Drop).nth(3), REQUEST, 9), [3]);
        assert_eq!(strikes(Rule::new(Fault::Drop).nth(1), REQUEST, 9), [1]);
    }

    #[test]
    fn a_rule_looks_only_at_what_its_fault_can_strike() {
        let none: [usize; 0] = [];
        assert_eq!(strikes(Rule::new(Fault::Drop).on(Messages::Replies), REQUEST, 3), none);
        assert_eq!(strikes(Rule::new(Fault::Drop).on(Messages::Requests), REPLY, 3), none);
        assert_eq!(strikes(Rule::new(Fault::Corrupt), REPLY, 3), none);
        assert_eq!(strikes(Rule::new(Fault::Rnr), REQUEST, 3), none);
        assert_eq!(strikes(Rule::new(Fault::RefuseDeregistration), REQUEST, 3), none);
        assert_eq!(strikes(Rule::new(Fault::RefuseDeregistration), Event::Deregistration, 1), [1]);
        assert_eq!(strikes(Rule::new(Fault::Drop), Event::Deregistration, 3), none);
    }

    #[test]
    fn the_same_seed_strikes_the_same() {
        let rule = || Rule::new(Fault::Drop).with_probability(0.3);
        let first = strikes(rule(), REQUEST, 100);
        assert_eq!(first, strikes(rule(), REQUEST, 100));
        assert!((10..60).contains(&first.len()), "{}", first.len());
    }
}
