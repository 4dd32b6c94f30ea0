//! Looking again and again for what the other side does, with an end.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Looks between two readings of the clock.
const LOOKS: u32 = 1 << 10;
/// Between two looks at the connection to the other side.
const CONNECTION_EVERY: Duration = Duration::from_millis(50);

/// Counts the looks that found nothing.
#[derive(Debug)]
pub struct Idle {
    within: Duration,
    /// Whether to lend the core to others after each look: the software device works on the same cores.
    lend: bool,
    /// The connection that the other side's end closes.
    beside: Option<TcpStream>,
    looks: u32,
    since: Option<Instant>,
    looked: Option<Instant>,
}

/// Nothing will happen any more, or has for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IdleError {
    /// The time is over.
    #[error("nothing happened for {0:?}: is the other side alive? raise --timeout if it only is slow")]
    Stalled(Duration),
    /// The other side has closed its connection.
    #[error("lost the other side; its own message says why")]
    Lost,
}

impl Idle {
    /// Gives up after `within` without anything found.
    pub fn new(within: Duration, lend: bool) -> Self {
        Self { within, lend, beside: None, looks: 0, since: None, looked: None }
    }

    /// Gives up at once when the other end of `connection` is closed.
    #[must_use]
    pub fn beside(self, connection: TcpStream) -> Self {
        Self { beside: Some(connection), ..self }
    }

    /// Whether the device works on this process's cores.
    #[inline]
    pub fn lends(&self) -> bool {
        self.lend
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
    /// [`IdleError::Stalled`] when that has been so for the time given, [`IdleError::Lost`] when the other side is
    /// gone.
    #[inline]
    pub fn step(&mut self) -> Result<(), IdleError> {
        self.looks = self.looks.wrapping_add(1);
        // No spin hint otherwise: under emulation and on some processors it costs more than the wait.
        if self.lend {
            std::thread::yield_now();
        }
        if self.looks.is_multiple_of(LOOKS) { self.look_at_the_clock() } else { Ok(()) }
    }

    #[cold]
    fn look_at_the_clock(&mut self) -> Result<(), IdleError> {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        if now - since >= self.within {
            return Err(IdleError::Stalled(self.within));
        }
        let Some(connection) = &self.beside else { return Ok(()) };
        if now - *self.looked.get_or_insert(now) < CONNECTION_EVERY {
            return Ok(());
        }
        self.looked = Some(now);
        let mut polled = [PollFd::new(connection, PollFlags::RDHUP)];
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        // An interrupted look is made again in time.
        let found = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0);
        if found && polled[0].revents().intersects(gone) { Err(IdleError::Lost) } else { Ok(()) }
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
    fn the_other_side_is_missed_before_the_time_is_over() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (connection, _) = listener.accept().unwrap();
        let mut idle = Idle::new(Duration::from_secs(3600), true).beside(connection);
        let begin = Instant::now();
        while begin.elapsed() < 4 * CONNECTION_EVERY {
            idle.step().unwrap();
        }
        drop(other);
        let begin = Instant::now();
        while idle.step().is_ok() {
            assert!(begin.elapsed() < Duration::from_secs(60), "it never misses it");
        }
        assert_eq!(idle.look_at_the_clock(), Ok(()), "the next look is not due yet");
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
