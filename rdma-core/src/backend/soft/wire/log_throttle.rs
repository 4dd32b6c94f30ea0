//! Limits the log lines that strangers can make this process write.

use std::time::{Duration, Instant};

/// Most lines in each [`PERIOD`]; further ones are counted.
pub(super) const LINES_MAX: u32 = 8;
/// Length of a period.
pub(super) const PERIOD: Duration = Duration::from_secs(10);

/// The count of log lines of the current period.
#[derive(Debug, Default)]
pub(super) struct LogThrottle {
    /// End of the current period.
    end: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl LogThrottle {
    /// Whether a line may be written now; if so, returns how many were left out since the last.
    pub(super) fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.end.is_none_or(|end| now >= end) {
            (self.end, self.lines) = (Some(now + PERIOD), 0);
        }
        if self.lines >= LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_writes_a_few_lines_a_period_and_the_next_tells_how_many_were_left_out() {
        let (mut throttle, begin) = (LogThrottle::default(), Instant::now());
        for (period, left_out) in [(0, 0), (1, 92), (5, 92)] {
            let now = begin + period * PERIOD;
            assert_eq!(throttle.admit(now), Some(left_out));
            let more = (1..100).filter(|_| throttle.admit(now + PERIOD / 2).is_some()).count();
            assert_eq!(more, LINES_MAX as usize - 1);
        }
        assert_eq!(throttle.admit(begin), None, "the clock of a caller may be a little behind");
    }
}
