//! The time at which a given-up transfer that does not end takes its lane with it.
//!
//! Waiting longer keeps the link, and with it the other transfers; waiting for ever would hold the blocks.

use std::time::{Duration, Instant};

use rdma_core::Deadline;

/// Time that a silent peer has to stop: 500 ms. A peer that runs needs one round trip.
pub(super) const QUIESCE_WITHIN: Duration = Duration::from_millis(500);
/// Time that a silent peer has to stop reading: 1 s, because this side sees nothing of its reads but heartbeats,
/// which come every 500 ms.
pub(super) const RECALL_WITHIN: Duration = Duration::from_secs(1);
/// Time that a peer which gives signs has at most: 5 s. Over a slow link its answer comes behind all that was queued
/// before.
pub(super) const QUIESCE_WITHIN_MAX: Duration = Duration::from_secs(5);
/// Time beyond the deadline that confirming to the peer may take: 1 s.
pub(super) const CONFIRM_WITHIN: Duration = Duration::from_secs(1);
/// Time that a wait goes on beyond a deadline at which the service ends the transfer: 8 s, which is more than a peer
/// that gives signs may take (5 s), the confirmation (1 s) and the device's fence (1 s) together.
pub(super) const END_WITHIN: Duration = Duration::from_secs(8);

/// The moment at which the lane is fenced, and how far signs of the peer put it off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fence {
    by: Instant,
    /// How long after its last sign a peer still has, and the moment that no sign moves.
    each: Duration,
    at_most: Instant,
}

impl Fence {
    /// A fence at `deadline` of the user, which signs of the peer do not move.
    pub(super) fn at(deadline: Instant) -> Self {
        Self { by: deadline, each: Duration::ZERO, at_most: deadline }
    }

    /// A fence once the peer has given no sign for `each`, counted from `now`.
    pub(super) fn after(each: Duration, now: Instant) -> Self {
        Self { by: now + each, each, at_most: now + QUIESCE_WITHIN_MAX }
    }

    /// A fence at the deadline of the user, or without one as late as any: nobody waits for the blocks then, and a peer
    /// without a thread gives no signs while its caller computes.
    pub(super) fn by(deadline: Option<Deadline>, now: Instant) -> Self {
        Self::at(deadline.map_or(now + QUIESCE_WITHIN_MAX, Deadline::instant))
    }

    /// Moves the fence forward to an earlier deadline of the user.
    pub(super) fn no_later_than(&mut self, deadline: Instant) {
        self.by = self.by.min(deadline);
        self.at_most = self.at_most.min(deadline);
    }

    /// The moment at which the lane is fenced whatever the peer does.
    pub(super) fn latest(&self) -> Instant {
        self.at_most
    }

    /// The moment at which the fence has to be looked at again.
    pub(super) fn due(&self) -> Instant {
        self.by
    }

    /// Whether the lane has to be fenced now; `moved` is the last sign of the peer.
    pub(super) fn is_due(&mut self, now: Instant, moved: Instant) -> bool {
        self.by = self.by.max((moved + self.each).min(self.at_most));
        self.by <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_put_a_fence_off_as_long_as_they_come_and_not_for_ever() {
        let start = Instant::now();
        let ms = |ms| start + Duration::from_millis(ms);
        let mut fence = Fence::after(QUIESCE_WITHIN, start);
        assert!(!fence.is_due(ms(499), start) && fence.is_due(ms(500), start));
        let mut fence = Fence::after(QUIESCE_WITHIN, start);
        assert!(!fence.is_due(ms(500), ms(400)) && fence.due() == ms(900));
        assert!((600..5000).step_by(100).all(|at| !fence.is_due(ms(at), ms(at - 50))));
        assert!(fence.is_due(ms(5000), ms(5000)));
        let mut fence = Fence::at(ms(100));
        assert!(!fence.is_due(ms(99), ms(99)) && fence.is_due(ms(100), ms(100)));
        let mut fence = Fence::after(QUIESCE_WITHIN, start);
        fence.no_later_than(ms(200));
        assert!(!fence.is_due(ms(199), ms(199)) && fence.is_due(ms(200), ms(200)));
    }
}
