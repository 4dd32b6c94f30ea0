//! Two ends in any order of their steps: no message finds no receive, and credits come back.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Debug, Clone, Copy)]
enum Message {
    Counted,
    Credit(u32),
}

/// A simulated side: its credits, its posted receives, its completion queue, and the messages under way to it.
struct Side {
    credits: Credits,
    posted: u32,
    arrived: VecDeque<Message>,
    under_way: VecDeque<Message>,
}

impl Side {
    /// A side that has sent and received `before` messages already.
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
