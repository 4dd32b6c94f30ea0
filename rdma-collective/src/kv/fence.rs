//! When a transfer that is given up, and does not end, takes its lane with it.

use std::time::{Duration, Instant};

/// How long a peer that gives no sign may take to stop: a round trip for one that runs.
pub(super) const QUIESCE_WITHIN: Duration = Duration::from_millis(500);
/// The same for one that reads, of which nothing is seen but its heartbeats.
pub(super) const RECALL_WITHIN: Duration = Duration::from_secs(1);
/// How long a peer may take that gives signs: what was queued before its answer is to move first, over a slow link too.
pub(super) const QUIESCE_WITHIN_MAX: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fence {
    by: Instant,
    /// How long each sign of the peer's puts it off, and until when at most.
    each: Duration,
    at_most: Instant,
}

impl Fence {
    /// Then, whatever happens: a deadline of the user's.
    pub(super) fn at(deadline: Instant) -> Self {
        Self { by: deadline, each: Duration::ZERO, at_most: deadline }
    }

    /// When the peer has given no sign for so long from `now` on.
    pub(super) fn after(each: Duration, now: Instant) -> Self {
        Self { by: now + each, each, at_most: now + QUIESCE_WITHIN_MAX }
    }

    /// The user does not wait for longer.
    pub(super) fn no_later_than(&mut self, deadline: Instant) {
        self.by = self.by.min(deadline);
        self.at_most = self.at_most.min(deadline);
    }

    /// When to look at it again.
    pub(super) fn due(&self) -> Instant {
        self.by
    }

    /// Whether it is time, when the last sign of the peer was `moved`.
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
