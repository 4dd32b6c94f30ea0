//! Until when all that has completed has been taken, though a drive takes only so much at a time.

use std::time::Instant;

/// See the module.
#[derive(Debug)]
pub(super) struct Known {
    until: Instant,
    /// Completions taken since the queue was last found empty, or as many as it holds were taken, and when that was.
    taken: usize,
    since: Instant,
    queue: usize,
}

impl Known {
    /// Of a completion queue that holds so many.
    pub(super) fn new(queue: u32, now: Instant) -> Self {
        Self { until: now, taken: 0, since: now, queue: queue as usize }
    }

    /// So many were taken from `looked` on, all there were or not.
    pub(super) fn taken(&mut self, taken: usize, all: bool, looked: Instant) {
        if self.taken == 0 {
            self.since = looked;
        }
        self.taken += taken;
        if all {
            self.until = self.until.max(looked);
            self.taken = 0;
        } else if self.taken >= self.queue {
            // A queue that is never empty: what was in it then has been taken.
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
