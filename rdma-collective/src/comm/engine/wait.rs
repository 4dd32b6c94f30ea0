//! Blocking calls: drive, look, spin a little, sleep until something happens or has to.
//!
//! Several threads may wait on one engine. One of them sleeps on the completion channel for all; the others sleep
//! until it has woken, since what it takes from the queue may be theirs.

use std::sync::{MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Core, Engine, LaneId};
use crate::comm::link::control::Kind;

/// Completions taken between two looks at what is waited for.
const BUDGET: usize = 256;
/// The longest sleep, for deadlines that are further away.
const SLEEP_MAX: Duration = Duration::from_secs(1);

impl Engine {
    /// Drives until `step` is ready; `None` when `deadline` passes first.
    ///
    /// `step` is called with the core locked after each drive, and what it queues is posted before anything waits.
    pub(crate) fn wait_for<T>(
        &self,
        deadline: Deadline,
        mut step: impl FnMut(&mut Core, Instant) -> Poll<T>,
    ) -> Option<T> {
        let mut idle_since = None;
        loop {
            let now = Instant::now();
            let mut core = self.lock();
            let happened = core.drive(now, BUDGET);
            let looked = step(&mut core, now);
            core.flush();
            if happened > 0 || looked.is_ready() {
                self.wake_followers(&core);
            }
            match looked {
                Poll::Ready(value) => return Some(value),
                Poll::Pending if deadline.expired_at(now) => return None,
                Poll::Pending => {}
            }
            if happened > 0 {
                idle_since = None;
                continue;
            }
            let since = *idle_since.get_or_insert(now);
            if now.duration_since(since) < self.shared.options.spin {
                drop(core);
                std::thread::yield_now();
                continue;
            }
            let wake_at =
                core.next_deadline().map_or(deadline.instant(), |next| next.min(deadline.instant()));
            self.sleep(core, wake_at.saturating_duration_since(now).min(SLEEP_MAX));
        }
    }

    /// Says on `lanes` that nothing more will be sent, and waits until all that was sent has arrived; whether it has by
    /// the deadline. Lanes that have ended have nothing to say.
    pub(crate) fn say_goodbye(&self, lanes: &[LaneId], deadline: Deadline) -> bool {
        let mut told = vec![false; lanes.len()];
        let drained = self.wait_for(deadline, |core, _| {
            let done = lanes.iter().zip(&mut told).map(|(lane, told)| has_left(core, *lane, told));
            if done.fold(true, |all, one| all & one) { Poll::Ready(()) } else { Poll::Pending }
        });
        drained.is_some()
    }

    fn wake_followers(&self, core: &Core) {
        if core.followers > 0 {
            self.shared.woken.notify_all();
        }
    }

    fn sleep(&self, mut core: MutexGuard<'_, Core>, timeout: Duration) {
        if core.asleep {
            core.followers += 1;
            let waited = self.shared.woken.wait_timeout(core, timeout);
            waited.unwrap_or_else(PoisonError::into_inner).0.followers -= 1;
            return;
        }
        core.arm();
        // What completed before the queue was armed raises no event.
        let happened = core.drive(Instant::now(), BUDGET);
        core.flush();
        if happened > 0 || core.health().is_err() {
            self.wake_followers(&core);
            return;
        }
        core.asleep = true;
        drop(core);
        let wake = PollFd::new(&self.shared.wake_fd, PollFlags::IN);
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        // An interrupted or refused sleep is a short one.
        let slept = poll(&mut [wake], Some(&timeout));
        let mut core = self.lock();
        core.asleep = false;
        if slept != Ok(0) {
            core.consume_events();
        }
        self.wake_followers(&core);
    }
}

/// Whether nothing is left to be done on a lane before it ends.
fn has_left(core: &mut Core, lane: LaneId, told: &mut bool) -> bool {
    let Some(lane) = core.lane(lane) else { return true };
    if lane.ended().is_some() {
        return true;
    }
    // What arrived is of no use any more, and its receives may be what the peer waits for.
    lane.discard_arrivals();
    *told = *told || matches!(lane.control(Kind::CLOSE, |_| Ok(())), Ok(true));
    *told && lane.is_drained()
}
