//! How receives are handed out: nothing is sent before the peer has posted a receive for it.
//!
//! The server posts receives ahead; the client may send as many unasked. For those that the server posts again it
//! sends grants, half a queue of them at a time, in immediates.

/// Receives for grants that the client posts ahead: no more than so many are ever under way.
pub const GRANTS_AHEAD: u32 = 4;

/// The receives of one queue pair for one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credits {
    ahead: u64,
    /// Messages for which a receive is posted later.
    later: u64,
    batch: u64,
}

impl Credits {
    /// For so many messages, into a receive queue of so many.
    pub fn new(messages: u64, rx_depth: u32) -> Self {
        let ahead = u64::from(rx_depth.max(1)).min(messages);
        Self { ahead, later: messages - ahead, batch: (ahead / 2).max(1) }
    }

    /// Receives that are posted before the first message.
    pub fn ahead(&self) -> u64 {
        self.ahead
    }

    /// Messages in all.
    pub fn messages(&self) -> u64 {
        self.ahead + self.later
    }

    /// How many grants there are in all.
    pub fn grants(&self) -> u64 {
        self.later.div_ceil(self.batch)
    }

    /// Returns the count of the next grant, when `posted` receives were posted and `granted` of them were granted.
    pub fn next_grant(&self, posted: u64, granted: u64) -> Option<u32> {
        let due = posted.saturating_sub(self.ahead).saturating_sub(granted);
        let whole = self.batch.min(self.later - granted.min(self.later));
        let grant = (whole > 0 && due >= whole).then_some(whole)?;
        u32::try_from(grant).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn half_a_queue_is_granted_at_a_time_and_the_rest_at_the_end() {
        let credits = Credits::new(21, 8);
        assert_eq!((credits.ahead(), credits.grants(), credits.messages()), (8, 4, 21));
        assert_eq!((credits.next_grant(11, 0), credits.next_grant(12, 0)), (None, Some(4)));
        assert_eq!((credits.next_grant(20, 12), credits.next_grant(21, 12)), (None, Some(1)));
        assert_eq!(credits.next_grant(21, 13), None);
        assert_eq!(Credits::new(5, 512).grants(), 0);
    }

    proptest! {
        /// Both sides move whenever they can, in any order; the wire keeps the order of each direction.
        #[test]
        fn no_message_ever_lacks_a_receive(
            messages in 1u64..300, rx_depth in 1u32..40, turns in prop::collection::vec(0u8..4, 1..2000),
        ) {
            let credits = Credits::new(messages, rx_depth);
            let (mut sent, mut allowed, mut grant_receives) = (0, credits.ahead(), credits.grants().min(4));
            let (mut received, mut posted, mut granted) = (0, credits.ahead(), 0);
            let (mut grants_posted, mut on_wire, mut grants) = (grant_receives, 0u64, VecDeque::new());
            for turn in turns.into_iter().chain((0..4).cycle().take(8000)) {
                match turn {
                    0 if sent < allowed => {
                        sent += 1;
                        on_wire += 1;
                        prop_assert!(sent <= posted, "message {sent} has no receive");
                    }
                    1 if on_wire > 0 => {
                        on_wire -= 1;
                        received += 1;
                        posted += u64::from(posted < messages);
                        prop_assert!(posted - received <= u64::from(rx_depth));
                    }
                    2 => if let Some(grant) = credits.next_grant(posted, granted) {
                        granted += u64::from(grant);
                        prop_assert!(grant_receives > 0, "a grant has no receive");
                        grant_receives -= 1;
                        grants.push_back(u64::from(grant));
                    },
                    3 => if let Some(grant) = grants.pop_front() {
                        allowed += grant;
                        if grants_posted < credits.grants() {
                            grants_posted += 1;
                            grant_receives += 1;
                        }
                    },
                    _ => {}
                }
            }
            prop_assert_eq!((sent, received, grants_posted), (messages, messages, credits.grants()));
            prop_assert_eq!(grant_receives, 0, "none is left for the next size");
        }
    }
}
