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
    /// Completions that the queue could hold at most since then, and what it could hold at the last drive. A queue pair
    /// that has ended since then may have left completions.
    queue: usize,
    last: usize,
}

impl Known {
    pub(super) fn new(now: Instant) -> Self {
        Self { until: now, taken: 0, since: now, queue: 0, last: 0 }
    }

    /// Notes that a drive, begun at `looked`, took `taken` completions of a queue that can hold `queue`; `all` says
    /// that it left none.
    pub(super) fn taken(&mut self, taken: usize, all: bool, looked: Instant, queue: u32) {
        if self.taken == 0 {
            self.since = looked;
            self.queue = self.last;
        }
        self.last = queue as usize;
        self.queue = self.queue.max(self.last);
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
        let mut known = Known::new(start);
        known.taken(40, false, ms(10), 100);
        assert_eq!(known.until(), start);
        known.taken(3, true, ms(20), 100);
        assert_eq!(known.until(), ms(20));
        known.taken(40, false, ms(30), 100);
        known.taken(40, false, ms(40), 100);
        assert_eq!(known.until(), ms(20));
        known.taken(40, false, ms(50), 100);
        assert_eq!(known.until(), ms(30), "what was there at 30 ms has been taken");
        known.taken(40, false, ms(60), 100);
        assert_eq!(known.until(), ms(30));
        known.taken(0, true, ms(70), 100);
        assert_eq!(known.until(), ms(70));
    }

    #[test]
    fn a_queue_counts_as_long_as_it_was_at_any_time_since_the_first_drive() {
        let start = Instant::now();
        let ms = |ms| start + Duration::from_millis(ms);
        let mut known = Known::new(start);
        known.taken(40, false, ms(10), 100);
        known.taken(40, false, ms(20), 50);
        assert_eq!(known.until(), start, "100 may have been there at 10 ms");
        known.taken(40, false, ms(30), 50);
        assert_eq!(known.until(), ms(10));
        known.taken(50, false, ms(40), 50);
        assert_eq!(known.until(), ms(40), "the queue of now holds 50");
        known.taken(20, false, ms(50), 20);
        assert_eq!(known.until(), ms(40), "a queue pair that has ended may have left 30");
        known.taken(30, false, ms(60), 20);
        assert_eq!(known.until(), ms(50));
    }
}
