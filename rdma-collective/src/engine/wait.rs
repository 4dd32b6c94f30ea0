//! Blocking calls: drive, look, spin a little, sleep until something happens or has to.
//!
//! Several threads may wait on one engine. One of them sleeps by the descriptor for all, and the others, its followers,
//! until it has woken or somebody has found something, which may be theirs. The engine's own thread follows nobody.

use std::sync::PoisonError;
use std::task::Poll;
use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::{Core, Engine, LaneId, Locked, Shared};
use crate::link::control::Kind;

/// Completions taken between two looks at what is waited for.
pub(super) const BUDGET: usize = 256;
/// The longest sleep, when nothing is due before.
pub(super) const SLEEP_MAX: Duration = Duration::from_secs(1);
/// How long callers pause, at most, and the engine's thread, at least, when the device has failed.
const PAUSE: Duration = Duration::from_millis(10);

impl Engine {
    /// Drives until `step` is ready; `None` when `deadline` passes first.
    ///
    /// `step` is called with the core locked after each drive, once at least, however late it is; what it queues is posted
    /// before anything waits.
    pub(crate) fn wait_for<T>(
        &self,
        deadline: Deadline,
        mut step: impl FnMut(&mut Core, Instant) -> Poll<T>,
    ) -> Option<T> {
        let shared = self.shared();
        let _waiting = Waiting::begin(shared);
        let mut idle_since = None;
        loop {
            let mut core = shared.lock();
            core.attendance.visits += 1;
            let happened = core.drive(Instant::now, BUDGET);
            let now = core.driven();
            let looked = step(&mut core, now);
            let look_at = core.look_at.take();
            core.flush();
            if looked.is_ready() || deadline.expired_at(now) {
                let Poll::Ready(value) = looked else { return None };
                core.news.note();
                return Some(value);
            }
            if happened > 0 {
                idle_since = None;
                continue;
            }
            let since = *idle_since.get_or_insert(now);
            if now.duration_since(since) < shared.options.spin {
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

    /// Says on `lanes` that nothing more will be sent, and waits until all that was sent has arrived; `false` when it has
    /// not by the deadline. Lanes that have ended are done, whatever was lost with them; so are those whose peers are
    /// silent for `peer_timeout`.
    pub(crate) fn say_goodbye(&self, lanes: &[LaneId], deadline: Deadline) -> bool {
        let mut told = vec![false; lanes.len()];
        let drained = self.wait_for(deadline, |core, now| {
            let done = lanes.iter().zip(&mut told).map(|(lane, told)| has_left(core, *lane, told, now));
            if done.fold(true, |all, one| all & one) { Poll::Ready(()) } else { Poll::Pending }
        });
        drained.is_some()
    }
}

impl Core {
    /// The caller that [waits](Engine::wait_for) and looks now does so again then, though nothing happens. The others
    /// need not.
    pub(crate) fn look_again_at(&mut self, look_at: Option<Instant>) {
        self.look_at = look_at;
    }
}

/// A caller in a blocking call, for which the engine's thread stays away: it comes again however the call ends.
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
    /// A caller that sleeps for all looks, once: for what has ended, or begun and is due before it would wake.
    pub(super) fn wake_leader(&self, core: &mut Core) {
        if std::mem::take(&mut core.led) {
            self.leader.send();
        }
    }

    /// Those who sleep while another thread does so for all look: for what it has found, or to take its place.
    pub(super) fn wake_followers(&self, core: &mut Core) {
        core.turn = core.turn.wrapping_add(1);
        if core.followers > 0 {
            self.woken.notify_all();
        }
    }

    /// Sleeps for `timeout`, or until the followers are woken after `turn`.
    fn follow(&self, turn: u64, timeout: Duration) {
        let mut core = self.lock_core();
        core.followers += 1;
        let waited = self.woken.wait_timeout_while(core, timeout, |core| core.turn == turn);
        waited.unwrap_or_else(PoisonError::into_inner).0.followers -= 1;
    }

    /// Sleeps for `timeout`, or until something happens; the engine's thread can be `nudged`, too. Who has found
    /// something that is still to be told does not sleep.
    pub(super) fn sleep(&self, mut core: Locked<'_>, timeout: Duration, nudged: bool) {
        if core.asleep && !nudged {
            let turn = core.turn;
            drop(core);
            return self.follow(turn, timeout);
        }
        core.arm();
        // What completed before the queue was armed raises no event.
        let happened = core.drive(Instant::now, BUDGET);
        core.flush();
        let broken = core.health().is_err();
        if broken || core.news.is_some() {
            drop(core);
            if broken && happened == 0 {
                // Nothing comes any more, and to ask for it fails at once: only times pass.
                self.pause(nudged, if nudged { timeout.max(PAUSE) } else { timeout.min(PAUSE) });
            }
            return;
        }
        let first = !std::mem::replace(&mut core.asleep, true);
        core.led |= !nudged;
        drop(core);
        let slept = self.poll(if nudged { &self.nudge } else { &self.leader }, timeout);
        let mut core = self.lock();
        if first {
            core.asleep = false;
        }
        if !nudged && !std::mem::take(&mut core.led) {
            self.leader.clear();
        }
        if slept {
            core.consume_events();
        }
        self.wake_followers(&mut core);
    }
}

/// Whether nothing is left to be done on a lane before it ends.
fn has_left(core: &mut Core, lane: LaneId, told: &mut bool, now: Instant) -> bool {
    let Some(lane) = core.lane(lane) else { return true };
    if lane.ended().is_some() {
        return true;
    }
    // What arrived is of no use any more, and its receives may be what the peer waits for.
    lane.discard_arrivals();
    if !*told && matches!(lane.control(Kind::CLOSE, |_| Ok(())), Ok(true)) {
        *told = true;
        lane.watch(now);
    }
    *told && lane.is_drained()
}
