//! Liveness of the lanes: each drive sends the heartbeats that are due, and turns silence or a death into a failure.
//!
//! The order within one drive matters. Deaths are noted first, completions are taken next, and silence is judged last:
//! a peer writes its messages before it dies, so a lane must not fail before those messages were taken. When peers die,
//! and how a process is watched, is `liveness`; how silence is measured is `link::pulse`.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::state::{EngineState, LaneId, LaneSlot};
use crate::link::LaneFailure;
use crate::link::Patience;
use crate::liveness::{Process, Sign, Watch};

/// The most by which a heartbeat goes early, so that it goes with another one.
const EARLY_MAX: Duration = Duration::from_millis(100);

/// Completions taken before it is looked for deaths: what a dead peer has sent is taken first.
const LOOK_BUDGET: usize = 1024;

/// Heartbeat and timeout settings of an engine, and the times at which it was driven.
#[derive(Debug)]
pub(super) struct Alive {
    /// The longest time that this side sends nothing on a lane; then it sends a heartbeat.
    pub(super) heartbeat: Duration,
    pub(super) patience: Patience,
    /// Whether the engine has a thread of its own, so that heartbeats go out whatever the callers do.
    pub(super) beats: bool,
    /// The process that owns the engine.
    pub(super) process: Process,
    /// The time of the last drive.
    pub(super) driven: Instant,
    /// The end and the length of the last gap between two drives that was long enough for peers to give this side up.
    pub(super) away: Option<(Instant, Duration)>,
}

impl EngineState {
    /// Makes the engine send heartbeats though no thread drives it: a test drives it, with times of its own.
    #[cfg(test)]
    pub(crate) fn beat_by_hand(&mut self) {
        self.alive.beats = true;
    }

    /// Whether this side sends heartbeats whatever its callers do.
    pub(crate) fn beats(&self) -> bool {
        self.alive.beats
    }

    /// The longest time that this side sends nothing on a lane; then it sends a heartbeat.
    pub(crate) fn heartbeat(&self) -> Duration {
        self.alive.heartbeat
    }

    /// The time of the last drive, which is the present for everything that acts during it.
    pub(crate) fn now(&self) -> Instant {
        self.alive.driven
    }

    /// The length of the last gap in which this process did not run, unless it ended longer ago than `peer_timeout`:
    /// by then the peers have decided.
    pub(crate) fn away(&self) -> Option<Duration> {
        let Alive { patience, driven, away, .. } = self.alive;
        away.filter(|(back, _)| driven.saturating_duration_since(*back) <= patience.peer_timeout)
            .map(|(_, gap)| gap)
    }

    /// The length of the last gap in which this process did not run, if the lane's peer was not heard since. If the
    /// lane has ended, it ended because of that gap: this side is the one that failed.
    pub(crate) fn away_from(&mut self, id: LaneId) -> Option<Duration> {
        let heartbeat = self.alive.heartbeat;
        self.lane(id)?.away(heartbeat)
    }

    /// Watches the peer's process, if it runs on this host: its end then ends the lane at once, without a timeout.
    pub(super) fn watch_process(&mut self, id: LaneId, process: &Process) {
        match process.watch() {
            Watch::Runs(descriptor) => {
                let sign = Sign::Process(process.pid);
                if let Err(error) = self.deaths.watch(id.key(), sign, descriptor) {
                    crate::log::debug!(pid = process.pid, %error, "cannot watch the process of a peer: its death will show as silence only");
                }
            }
            Watch::Ended => {
                self.lane(id)
                    .into_iter()
                    .for_each(|lane| lane.process_ended(Sign::Process(process.pid).into()));
            }
            Watch::Unseen => {}
        }
    }

    /// Whether a process or a connection of the peer is watched, so that its end ends the lane at once.
    pub(crate) fn is_watched(&self, id: LaneId) -> bool {
        self.deaths.is_watched(id.key())
    }

    /// Watches a connection that the peer's process holds: the end of the connection then ends the lane. This side
    /// keeps its end open, because the peer may watch that.
    pub(crate) fn watch_connection(&mut self, id: LaneId, connection: OwnedFd) {
        if self.lane(id).is_none() {
            return;
        }
        self.deaths.forget(id.key());
        if let Err(error) = self.deaths.watch(id.key(), Sign::Connection, connection) {
            crate::log::debug!(%error, "cannot watch the connection of a peer: its death will show as silence only");
        }
    }

    /// Has the end of the peer's process, which ends lane `from`, end lane `to` instead: `from` ends before its peer.
    pub(crate) fn move_watch(&mut self, from: LaneId, to: LaneId) {
        self.deaths.rename(from.key(), to.key());
    }

    /// Keeps a connection open as long as the lane, for the peer, which may watch it. This side does not watch it.
    pub(crate) fn hold_connection(&mut self, id: LaneId, connection: OwnedFd) {
        if self.lane(id).is_some() {
            self.deaths.forget(id.key());
            self.deaths.hold(id.key(), connection);
        }
    }

    /// The name of this process, as its peers know it.
    pub(crate) fn process(&self) -> Process {
        self.alive.process
    }

    /// Makes this process look like one of another host to its peers.
    #[cfg(test)]
    pub(crate) fn move_elsewhere(&mut self) {
        self.alive.process.boot = [0xee; 16];
    }

    /// Detects that this process did not run for a while (stopped, or starved of a core), and restarts every peer's
    /// timeout: this side did not listen, so it cannot know that the peers said nothing.
    ///
    /// Must run before [`keep_alive`](Self::keep_alive) judges silence, otherwise a process that is continued after a
    /// stop would report all its peers as lost, although it is the one that was away.
    pub(super) fn notice_absence(&mut self, now: Instant) {
        let Alive { heartbeat, patience, driven, beats, .. } = self.alive;
        self.alive.driven = now;
        let gap = now.saturating_duration_since(driven);
        // A shorter gap costs a peer only near the peer's deadline, where it waits `hasty` after the last heartbeat;
        // the peer's report says so then. A rank that is starved for a shorter time must go on naming those that are
        // silent.
        if gap < heartbeat.saturating_add(patience.hasty.min(patience.peer_timeout / 2)) {
            return;
        }
        if beats {
            self.alive.away = Some((now, gap));
        }
        for entry in &mut self.lanes {
            match &mut entry.slot {
                // Without a thread, peers do not take this side's silence for a loss: only their clocks restart here.
                LaneSlot::Open(lane) if beats => lane.back(now, gap),
                LaneSlot::Open(lane) => lane.restart(now),
                _ => {}
            }
        }
    }

    /// Notes which peers have died, and returns whether one has. Runs before completions are taken: a peer sends before
    /// it dies, so what is taken after this point includes all that a dead peer has sent.
    pub(super) fn look_for_deaths(&mut self, now: Instant) -> bool {
        let Self { deaths, lanes, touched, .. } = self;
        let mut any = false;
        deaths.look(now, |key, sign| {
            any = true;
            let index = LaneId::index_of(key);
            let Some(entry) = lanes.get_mut(index) else { return };
            entry.touch(index, touched);
            if let LaneSlot::Open(lane) = &mut entry.slot {
                lane.process_ended(sign.into());
            }
        });
        any
    }

    /// Takes what peers have sent by now and ends the lanes of those that are lost, without the pause between two looks
    /// for deaths. Services do not act, so one of them may call this.
    ///
    /// Call it before naming who is at fault outside a drive: this process may have been stopped since the last one.
    pub(crate) fn catch_up(&mut self) {
        self.deaths.look_next();
        let (found, _) = self.listen(Instant::now, LOOK_BUDGET);
        self.take_aside(found);
    }

    /// Sends the heartbeats that are due, and ends the lanes whose peers have died or are silent for too long.
    ///
    /// Lanes are ended only if `heard_all`, which says that the completion queue was found empty. Otherwise a
    /// completion that was not taken yet may be the message of a peer that would be reported as lost.
    ///
    /// Looks only at the lanes whose time has come. Heartbeats that are nearly due go with the first, so that lanes at
    /// rest wake this process, and their peers, together.
    pub(super) fn keep_alive(&mut self, now: Instant, heard_all: bool) {
        let Self { alive, lanes, touched, signs, services, looking, .. } = self;
        // Their times may have become earlier since they were last flushed.
        for &index in &*touched {
            if let Some(LaneSlot::Open(lane)) = lanes.get(index).map(|entry| &entry.slot) {
                alive.expect(signs, index, lane, now);
            }
        }
        if signs.first().is_none_or(|first| now < first) {
            return;
        }
        let nearly = (alive.heartbeat / 8).min(EARLY_MAX);
        looking.extend(signs.due(now + nearly));
        for index in looking.drain(..) {
            let Some(entry) = lanes.get_mut(index) else { continue };
            entry.touch(index, touched);
            let LaneSlot::Open(lane) = &mut entry.slot else { continue };
            lane.beat(now, alive.heartbeat - nearly);
            if heard_all {
                lane.listen(now, alive.patience);
            }
            if lane.ended().is_some() {
                entry.service.into_iter().for_each(|service| services.call(service));
            }
            signs.set(index, lane.next_sign(alive.heartbeat, alive.patience));
        }
    }

    /// The next time at which [`keep_alive`](Self::keep_alive) has something to do: a heartbeat, or a peer's timeout.
    pub(super) fn next_sign_of_life(&self) -> Option<Instant> {
        self.signs.first()
    }
}

impl LaneId {
    /// A number that names the lane among all lanes of its engine, past ones included.
    pub(super) fn key(self) -> u64 {
        (u64::from(self.index) << 32) | u64::from(self.generation)
    }

    fn index_of(key: u64) -> usize {
        (key >> 32) as usize
    }
}

impl From<Sign> for LaneFailure {
    fn from(sign: Sign) -> Self {
        match sign {
            Sign::Process(pid) => Self::Died { pid },
            Sign::Connection => Self::Disconnected,
        }
    }
}
