//! A clock that is read in a few nanoseconds and is some milliseconds behind, for what is far from its deadline nearly always.

use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rustix::time::{ClockId, clock_gettime};

/// How far behind it is taken to be: more than a tick of any kernel. It is further behind where no processor of a virtual machine ran
/// for longer: an operation whose deadline has passed meanwhile then begins, and ends by that as one that was begun before.
const BEHIND: Duration = Duration::from_millis(50);

/// See the module. It is `CLOCK_MONOTONIC_COARSE` (`clock_gettime(2)`), which is as late as the kernel's last tick.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    /// What it said at first.
    coarse: Duration,
    /// What was at least as far ahead then as is asked for; without it nothing is.
    ahead: Option<Instant>,
}

impl Clock {
    /// For who asks for `within` at most.
    pub(super) fn new(within: Duration) -> Self {
        let ahead = Instant::now().checked_add(BEHIND).and_then(|ahead| ahead.checked_add(within));
        Self { coarse: coarse(), ahead }
    }

    /// Whether `deadline` is more than `within` ahead; the exact clock is asked where that is not clear.
    #[inline]
    pub(super) fn leaves(&self, deadline: Deadline, within: impl FnOnce() -> Duration) -> bool {
        let passed = coarse().saturating_sub(self.coarse);
        let is_far = |ahead| deadline.instant().saturating_duration_since(ahead) > passed;
        let leaves_exactly =
            || Instant::now().checked_add(within()).is_some_and(|then| !deadline.expired_at(then));
        self.ahead.is_some_and(is_far) || leaves_exactly()
    }
}

#[inline]
fn coarse() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    // It has run since the machine began, and its parts are in their ranges.
    Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_told_from_one_that_has_passed_however_near_it_is() {
        let clock = Clock::new(Duration::from_secs(1));
        for within in [0, 1, 1000].map(Duration::from_millis) {
            for ahead in [60, 1000, 3_600_000].map(Duration::from_millis) {
                assert!(clock.leaves(Deadline::after(within + ahead), || within), "{ahead:?}");
            }
            for late in [0, 1, 49, 51, 1000].map(Duration::from_millis) {
                let deadline = Deadline::at(Instant::now().checked_sub(late).unwrap() + within);
                assert!(!clock.leaves(deadline, || within), "{late:?}");
            }
        }
        assert!(!Clock::new(Duration::MAX).leaves(Deadline::after(Duration::MAX), || Duration::MAX));
    }
}
