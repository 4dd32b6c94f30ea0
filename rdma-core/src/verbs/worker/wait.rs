//! Waiting for completions, with a deadline.

use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::Worker;
use crate::error::PollError;
use crate::{Completion, Deadline};

/// Looks at the queue before going to sleep for it: a completion that is about to come costs
/// less to look for than a wake-up.
const LOOKS_BEFORE_SLEEP: u32 = 64;

impl Worker {
    /// The next completion, sleeping for it until `deadline`.
    ///
    /// # Errors
    ///
    /// [`PollError::DeadlineExceeded`] when none came in time (nothing is lost: wait or poll
    /// again), or as for [`poll`](Self::poll).
    pub fn wait(&mut self, deadline: Deadline) -> Result<Completion, PollError> {
        let begin = Instant::now();
        loop {
            for _ in 0..LOOKS_BEFORE_SLEEP {
                if let Some(completion) = self.poll()? {
                    return Ok(completion);
                }
                std::hint::spin_loop();
            }
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

    /// Sleeps until an event was raised or `deadline` passed.
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
