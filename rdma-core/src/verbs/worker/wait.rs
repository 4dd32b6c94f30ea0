//! [`Worker::wait`]: waiting for a completion until a deadline.

use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::Worker;
use crate::error::PollError;
use crate::{Completion, Deadline};

/// Polls before the thread sleeps. Completions often arrive within that time, and 64 polls of a NIC or of shared memory
/// cost less than one wake-up.
const LOOKS_BEFORE_SLEEP: u32 = 64;

impl Worker {
    /// Returns the next completion and sleeps until one arrives or `deadline` passes.
    ///
    /// # Errors
    ///
    /// - [`PollError::DeadlineExceeded`] when no completion arrived in time. Nothing is lost: wait or poll
    ///   again.
    /// - The errors of [`poll`](Self::poll).
    pub fn wait(&mut self, deadline: Deadline) -> Result<Completion, PollError> {
        let begin = Instant::now();
        loop {
            for _ in 0..LOOKS_BEFORE_SLEEP {
                if let Some(completion) = self.poll()? {
                    return Ok(completion);
                }
                if self.core.get_mut()?.should_yield() {
                    std::thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
            }
            // A completion between the last poll and this request raises no event, so the queue is polled
            // once more below.
            self.request_notify()?;
            if let Some(completion) = self.poll()? {
                return Ok(completion);
            }
            if deadline.expired() {
                return Err(PollError::DeadlineExceeded { waited: begin.elapsed() });
            }
            self.sleep(deadline)?;
            self.consume_events()?;
        }
    }

    /// Sleeps until an event is raised or `deadline` passes.
    fn sleep(&self, deadline: Deadline) -> Result<(), PollError> {
        let fd = self.event_fd();
        let remaining = deadline.remaining();
        let timeout =
            Timespec { tv_sec: remaining.as_secs() as i64, tv_nsec: remaining.subsec_nanos().into() };
        match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(PollError::Refused { verb: "poll", source: error.into() }),
        }
    }
}
