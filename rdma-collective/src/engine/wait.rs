//! Blocking calls: drive, look, spin briefly, then sleep until an event or the next deadline.
//!
//! Several threads may wait on one engine. One of them (the leader) sleeps by the descriptor for all. The others (its
//! followers) sleep by a condition variable, until the leader has woken or any thread has found something that may be
//! theirs. One sleeper at the descriptor is enough, and two would race for the same events. The engine's own thread
//! follows nobody: it must come back for heartbeats whatever the callers do.

use std::sync::PoisonError;
use std::task::Poll;
use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::attendance::{Sleeper, SleeperEvent};
use super::{Engine, EngineState, LaneId, Locked, Shared};
#[cfg(doc)]
use crate::engine::EngineOptions;
use crate::link::control::Kind;

/// Completions taken by one drive, between two looks at the operation in question.
pub(super) const BUDGET: usize = 256;
/// Looks in vain before a caller sleeps, though they take longer than [`EngineOptions::spin`]: each yields the core, so
/// where ranks share cores most of that time is the others'.
const SPIN_LOOKS: u32 = 64;
/// How many times as long as [`EngineOptions::spin`] these looks may take: beside threads that never wait, a caller
/// that sleeps is woken earlier than one that yields comes back.
const SPIN_STRETCH: u32 = 8;
/// The longest sleep while nothing is due.
pub(super) const SLEEP_MAX: Duration = Duration::from_secs(1);
/// The pause after a device has failed: at most this for callers, at least this for the engine's thread. Nothing will
/// come any more, so a loop without a pause would keep a core busy.
const PAUSE: Duration = Duration::from_millis(10);

impl Engine {
    /// Drives until `step` is ready; `None` when `deadline` passes first.
    ///
    /// `step` is called under the lock after each drive, and at least once even if the deadline has passed: a result
    /// that is there is not thrown away. Requests that it queues are posted before the thread sleeps.
    pub(crate) fn wait_for<T>(
        &self,
        deadline: Deadline,
        mut step: impl FnMut(&mut EngineState, Instant) -> Poll<T>,
    ) -> Option<T> {
        let shared = self.shared();
        let _waiting = Waiting::begin(shared);
        let mut idle_since = None;
        let mut looks = 0;
        loop {
            let mut core = shared.lock();
            core.attendance.visits += 1;
            let happened = core.drive(Instant::now, BUDGET);
            let now = core.now();
            let looked = step(&mut core, now);
            let look_at = core.look_at.take();
            let (mut core, released) = shared.flush(core);
            if looked.is_ready() || deadline.expired_at(now) {
                let Poll::Ready(value) = looked else { return None };
                core.news.note();
                return Some(value);
            }
            if happened > 0 || released {
                idle_since = None;
                looks = 0;
                drop(core);
                shared.let_others();
                continue;
            }
            let (since, spin) = (*idle_since.get_or_insert(now), shared.options.spin);
            looks += 1;
            let spun = now.duration_since(since);
            if spun < spin || looks < SPIN_LOOKS && spun < spin.saturating_mul(SPIN_STRETCH) {
                drop(core);
                std::thread::yield_now();
                continue;
            }
            let due = core.next_deadline().into_iter().chain(look_at);
            let wake_at = due.fold(deadline.instant(), Instant::min);
            if wake_at <= now {
                drop(core);
                std::thread::yield_now();
                continue;
            }
            shared.sleep(core, wake_at.saturating_duration_since(now).min(SLEEP_MAX), false);
        }
    }

    /// Sends CLOSE on `lanes`, and waits until everything that was sent has been acknowledged; `false` if that was not
    /// so by the deadline.
    ///
    /// A lane that has ended counts as done, whatever was lost with it, and so does one whose peer is silent for
    /// `peer_timeout`.
    pub(crate) fn say_goodbye(&self, lanes: &[LaneId], deadline: Deadline) -> bool {
        let mut told = vec![false; lanes.len()];
        let drained = self.wait_for(deadline, |core, now| {
            let done = lanes.iter().zip(&mut told).map(|(lane, told)| has_left(core, *lane, told, now));
            if done.fold(true, |all, one| all & one) { Poll::Ready(()) } else { Poll::Pending }
        });
        drained.is_some()
    }
}

impl EngineState {
    /// Has the caller that is in its [step](Engine::wait_for) look again at that time, though nothing happens. Other
    /// callers are not woken for it.
    pub(crate) fn look_again_at(&mut self, look_at: Option<Instant>) {
        self.look_at = look_at;
    }
}

/// The mark of a caller in a blocking call, for which the engine's thread steps back. A guard, so that the thread is
/// called back however the call ends, by a panic included.
struct Waiting<'a>(&'a Shared);

impl<'a> Waiting<'a> {
    fn begin(shared: &'a Shared) -> Self {
        shared.lock().attendance.waiting += 1;
        Self(shared)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut core = self.0.lock();
        core.attendance.waiting -= 1;
        self.0.nudge(&core);
    }
}

impl Shared {
    /// Wakes the caller that sleeps as leader, once: an operation may have ended, or one has begun that is due before
    /// the leader would wake.
    pub(super) fn wake_leader(&self, core: &mut EngineState) {
        if core.attendance.on_sleeper(SleeperEvent::News) == Sleeper::Leader {
            self.leader.send();
        }
    }

    /// Wakes the followers, so that each looks for its own operation, and one of them becomes the leader.
    pub(super) fn wake_followers(&self, core: &mut EngineState) {
        core.turn = core.turn.wrapping_add(1);
        if core.followers > 0 {
            self.woken.notify_all();
        }
    }

    /// Sleeps as a follower for `timeout`, or until the followers are woken after `turn`.
    fn follow(&self, turn: u64, timeout: Duration) {
        let mut core = self.lock_core();
        core.followers += 1;
        let waited = self.woken.wait_timeout_while(core, timeout, |core| core.turn == turn);
        waited.unwrap_or_else(PoisonError::into_inner).0.followers -= 1;
    }

    /// Sleeps for `timeout`, or until something happens. The engine's thread (`nudged`) wakes at its nudge, too.
    ///
    /// A thread that has found something for others does not sleep: dropping the lock here tells them.
    pub(super) fn sleep(&self, mut core: Locked<'_>, timeout: Duration, nudged: bool) {
        if core.attendance.sleeper() != Sleeper::Nobody && !nudged {
            let turn = core.turn;
            drop(core);
            return self.follow(turn, timeout);
        }
        core.arm();
        // Arm before the last look: a completion that came before the arming raises no event, so look once more now.
        let happened = core.drive(Instant::now, BUDGET);
        if core.flush_slice() {
            // There is more to post at once, and whoever drives next does.
            return;
        }
        let broken = core.health().is_err();
        if broken || core.news.is_some() {
            drop(core);
            if broken && happened == 0 {
                // The device has failed: no event will come, and arming fails at once. Only deadlines are left.
                self.pause(nudged, if nudged { timeout.max(PAUSE) } else { timeout.min(PAUSE) });
            }
            return;
        }
        let (sleeps, wakes) = match nudged {
            true => (SleeperEvent::ThreadSleeps, SleeperEvent::ThreadWakes),
            false => (SleeperEvent::LeaderSleeps, SleeperEvent::LeaderWakes),
        };
        core.attendance.on_sleeper(sleeps);
        drop(core);
        let slept = self.poll(if nudged { &self.nudge } else { &self.leader }, timeout);
        let mut core = self.lock();
        if core.attendance.on_sleeper(wakes) == Sleeper::ToldLeader && !nudged {
            self.leader.clear();
        }
        if slept {
            core.consume_events();
        }
        self.wake_followers(&mut core);
    }
}

/// Sends CLOSE once, and returns whether nothing is left to be done on the lane before it ends.
fn has_left(core: &mut EngineState, lane: LaneId, told: &mut bool, now: Instant) -> bool {
    let Some(lane) = core.lane(lane) else { return true };
    if lane.ended().is_some() {
        return true;
    }
    // Arrivals are of no use any more, but their receives must be posted again: the peer may wait for the credits
    // before it can send its own CLOSE.
    lane.discard_arrivals();
    if !*told && matches!(lane.control(Kind::CLOSE, |_| Ok(())), Ok(true)) {
        *told = true;
        lane.watch(now);
    }
    *told && lane.is_drained()
}
