//! Who may send how much before the other side has posted receives again.
//!
//! Every message that takes a receive costs a credit: control messages, and writes with an immediate. A side
//! that has used up half of what it granted says so with a [`Credit`](super::imm::Imm::Credit) immediate. Those
//! take receives too, but no credit; [`RESERVED`] receives beyond the grant are kept for them:
//! each tells of at least half a grant of messages, and no more than one grant of messages can be untold, so two
//! of them at most are under way. With that no receive is ever missing, whatever the order of arrival.

use super::imm::{COUNT_MASK, advanced};

/// Receives posted beyond what is granted, for the messages that return credits.
pub(crate) const RESERVED: u32 = 2;

/// Both directions of one lane.
#[derive(Debug, Clone)]
pub(crate) struct Credits {
    /// What the peer granted.
    granted: u32,
    sent: u64,
    returned: u64,
    /// What we granted.
    own: u32,
    /// Messages whose receive is posted again.
    consumed: u64,
    told: u64,
}

/// A peer returned more credits than it was sent messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyReturned;

impl Credits {
    /// `granted` by the peer, `own` by this side; neither is 0.
    pub(crate) fn new(granted: u32, own: u32) -> Self {
        Self { granted, sent: 0, returned: 0, own, consumed: 0, told: 0 }
    }

    /// Messages that may be sent now.
    pub(crate) fn available(&self) -> u32 {
        // What is sent and not returned never exceeds the grant.
        self.granted - (self.sent - self.returned) as u32
    }

    /// Takes one credit; `false` when there is none.
    pub(crate) fn take(&mut self) -> bool {
        let available = self.available() > 0;
        self.sent += u64::from(available);
        available
    }

    /// The peer says how many messages it has used up since the lane began.
    pub(crate) fn returned(&mut self, count: u32) -> Result<(), TooManyReturned> {
        let ahead = advanced(self.returned, count, self.sent - self.returned).ok_or(TooManyReturned)?;
        self.returned += ahead;
        Ok(())
    }

    /// A message was used up, and its receive is posted again.
    pub(crate) fn consumed(&mut self) {
        self.consumed += 1;
    }

    /// What to tell the peer, once there is enough to tell.
    pub(crate) fn due(&self) -> Option<u32> {
        let due = self.consumed - self.told >= u64::from(self.own.div_ceil(2));
        due.then_some(self.consumed as u32 & COUNT_MASK)
    }

    /// What was due has been sent.
    pub(crate) fn told(&mut self) {
        self.told = self.consumed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[derive(Debug, Clone, Copy)]
    enum Message {
        Counted,
        Credit(u32),
    }

    /// One side: its credits, the receives it has posted, what lies in its completion queue, what is under way to it.
    struct Side {
        credits: Credits,
        posted: u32,
        arrived: VecDeque<Message>,
        under_way: VecDeque<Message>,
    }

    impl Side {
        /// One that has sent and received `before` messages in its life.
        fn new(granted: u32, own: u32, before: u64) -> Self {
            let [sent, returned, consumed, told] = [before; 4];
            let credits = Credits { sent, returned, consumed, told, ..Credits::new(granted, own) };
            Self { credits, posted: own + RESERVED, arrived: VecDeque::new(), under_way: VecDeque::new() }
        }
    }

    fn act(sides: &mut [Side; 2], side: usize, action: u8) {
        let other = 1 - side;
        match action {
            0 if sides[side].credits.take() => sides[other].under_way.push_back(Message::Counted),
            1 => {
                if let Some(message) = sides[side].under_way.pop_front() {
                    assert!(sides[side].posted > 0, "a message finds no receive");
                    sides[side].posted -= 1;
                    sides[side].arrived.push_back(message);
                }
            }
            2 => {
                if let Some(message) = sides[side].arrived.pop_front() {
                    sides[side].posted += 1;
                    match message {
                        Message::Counted => sides[side].credits.consumed(),
                        Message::Credit(count) => sides[side].credits.returned(count).unwrap(),
                    }
                }
            }
            _ => {
                if let Some(count) = sides[side].credits.due() {
                    sides[side].credits.told();
                    sides[other].under_way.push_back(Message::Credit(count));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn no_message_ever_finds_no_receive_and_credits_come_back(
            grants in (1_u32..9, 1_u32..9),
            before in prop_oneof![Just(0), u64::from(COUNT_MASK) - 40..=u64::from(COUNT_MASK)],
            actions in prop::collection::vec((0_usize..2, 0_u8..4), 0..400),
        ) {
            let mut sides = [Side::new(grants.1, grants.0, before), Side::new(grants.0, grants.1, before)];
            for (side, action) in actions {
                act(&mut sides, side, action);
            }
            for _ in 0..200 {
                for side in 0..2 {
                    for action in 1..4 {
                        act(&mut sides, side, action);
                    }
                }
            }
            for side in &sides {
                prop_assert!(side.credits.available() > 0);
                prop_assert!(side.arrived.is_empty() && side.under_way.is_empty());
            }
        }
    }

    #[test]
    fn credits_for_messages_that_were_never_sent_are_refused() {
        let mut credits = Credits::new(4, 4);
        assert!(credits.take() && credits.take());
        assert_eq!(credits.returned(3), Err(TooManyReturned));
        assert_eq!((credits.returned(2), credits.available()), (Ok(()), 4));
        assert_eq!(credits.returned(1), Err(TooManyReturned));
    }

    #[test]
    fn a_full_grant_stops_the_sender() {
        let mut credits = Credits::new(2, 2);
        assert_eq!([credits.take(), credits.take(), credits.take()], [true, true, false]);
        assert_eq!(credits.due(), None);
        credits.consumed();
        assert_eq!(credits.due(), Some(1));
    }
}
