//! The time up to which every completion was taken.
//!
//! A drive takes a bounded number of completions, so one drive does not show that the queue was emptied. An operation
//! may be reported as late only for times before this mark: otherwise a completion that lies in a full queue would
//! count as missing.

use std::time::Instant;

/// The mark, and the count by which it moves while the queue is never found empty.
#[derive(Debug)]
pub(super) struct Known {
    until: Instant,
    /// Completions taken since `since`.
    taken: usize,
    /// The first drive after the queue was last found empty, or after a whole queue's worth was taken.
    since: Instant,
    /// Completions that the queue can hold.
    queue: usize,
}

impl Known {
    /// The mark of a completion queue that holds `queue` completions.
    pub(super) fn new(queue: u32, now: Instant) -> Self {
        Self { until: now, taken: 0, since: now, queue: queue as usize }
    }

    /// Notes that a drive, begun at `looked`, took `taken` completions; `all` says that it left none.
    pub(super) fn taken(&mut self, taken: usize, all: bool, looked: Instant) {
        if self.taken == 0 {
            self.since = looked;
        }
        self.taken += taken;
        if all {
            self.until = self.until.max(looked);
            self.taken = 0;
        } else if self.taken >= self.queue {
            // The queue is never empty, but as many were taken as it holds: all that was in it at `since` is out.
            self.until = self.until.max(self.since);
            self.taken = 0;
        }
    }

    pub(super) fn until(&self) -> Instant {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_left_in_the_queue_is_not_known_and_a_queue_that_is_never_empty_keeps_nobody() {
        let start = Instant::now();
        let ms = |ms| start + Duration::from_millis(ms);
        let mut known = Known::new(100, start);
        known.taken(40, false, ms(10));
        assert_eq!(known.until(), start);
        known.taken(3, true, ms(20));
        assert_eq!(known.until(), ms(20));
        known.taken(40, false, ms(30));
        known.taken(40, false, ms(40));
        assert_eq!(known.until(), ms(20));
        known.taken(40, false, ms(50));
        assert_eq!(known.until(), ms(30), "what was there at 30 ms has been taken");
        known.taken(40, false, ms(60));
        assert_eq!(known.until(), ms(30));
        known.taken(0, true, ms(70));
        assert_eq!(known.until(), ms(70));
    }
}
