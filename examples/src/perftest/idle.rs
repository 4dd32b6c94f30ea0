//! Looking again and again for what the other side does, with an end.

use std::time::{Duration, Instant};
use thiserror::Error;

/// Looks between two readings of the clock.
const LOOKS: u32 = 1 << 10;

/// Counts the looks that found nothing.
#[derive(Debug)]
pub struct Idle {
    within: Duration,
    /// Whether to lend the core to others after each look: the software device works on the same cores.
    lend: bool,
    looks: u32,
    since: Option<Instant>,
}

/// Nothing happened for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("nothing happened for {0:?}: is the other side alive? raise --timeout if it only is slow")]
pub struct Stalled(Duration);

impl Idle {
    /// Gives up after `within` without anything found.
    pub fn new(within: Duration, lend: bool) -> Self {
        Self { within, lend, looks: 0, since: None }
    }

    /// Something was found.
    #[inline]
    pub fn reset(&mut self) {
        self.looks = 0;
        self.since = None;
    }

    /// Nothing was found.
    ///
    /// # Errors
    ///
    /// [`Stalled`] when that has been so for the time given.
    #[inline]
    pub fn step(&mut self) -> Result<(), Stalled> {
        self.looks = self.looks.wrapping_add(1);
        // No spin hint otherwise: under emulation and on some processors it costs more than the wait.
        if self.lend {
            std::thread::yield_now();
        }
        if self.looks.is_multiple_of(LOOKS) { self.look_at_the_clock() } else { Ok(()) }
    }

    #[cold]
    fn look_at_the_clock(&mut self) -> Result<(), Stalled> {
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.within { Err(Stalled(self.within)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends() {
        let mut idle = Idle::new(Duration::from_millis(20), true);
        let begin = Instant::now();
        while idle.step().is_ok() {
            assert!(begin.elapsed() < Duration::from_secs(60), "it never gives up");
        }
        assert!(begin.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn what_is_found_starts_the_time_again() {
        let mut idle = Idle::new(Duration::from_secs(3600), false);
        for _ in 0..2 * LOOKS {
            idle.step().unwrap();
        }
        assert!(idle.since.is_some());
        idle.reset();
        assert!(idle.since.is_none());
    }
}
