//! Liveness of the lanes whenever the engine is driven: beats go out, and silence or a death becomes a failure.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::core::{Core, LaneId, Place};
use crate::link::LaneFailure;
use crate::link::{Lane, Patience};
use crate::liveness::{Process, Sign, Watch};

/// What an engine does about liveness, and when it did so last.
#[derive(Debug)]
pub(super) struct Alive {
    /// How long a lane is quiet before this side says that it lives.
    pub(super) heartbeat: Duration,
    pub(super) patience: Patience,
    /// Whether a thread drives the engine whatever its callers do.
    pub(super) beats: bool,
    /// Whose engine it is.
    pub(super) process: Process,
    /// When the engine was driven last.
    pub(super) driven: Instant,
    /// When it was last driven after a gap in which peers may have lost it, and how long the gap was.
    pub(super) away: Option<(Instant, Duration)>,
}

impl Core {
    /// As if a thread drove it, which a test does in its place with times of its own.
    #[cfg(test)]
    pub(crate) fn beat_by_hand(&mut self) {
        self.alive.beats = true;
    }

    /// Whether this side says that it lives, whatever its callers do.
    pub(crate) fn beats(&self) -> bool {
        self.alive.beats
    }

    /// How long a lane is quiet before this side says that it lives.
    pub(crate) fn heartbeat(&self) -> Duration {
        self.alive.heartbeat
    }

    /// When the engine was driven last.
    pub(crate) fn driven(&self) -> Instant {
        self.alive.driven
    }

    /// How long this process did not run though it should have, if that is no longer ago than peers wait.
    pub(crate) fn away(&self) -> Option<Duration> {
        let Alive { patience, driven, away, .. } = self.alive;
        away.filter(|(back, _)| driven.saturating_duration_since(*back) <= patience.peer_timeout)
            .map(|(_, gap)| gap)
    }

    /// The same, when the peer of a lane was not heard since: it has gone because of that, if it has gone.
    pub(crate) fn away_from(&mut self, id: LaneId) -> Option<Duration> {
        let heartbeat = self.alive.heartbeat;
        self.lane(id)?.away(heartbeat)
    }

    /// From now on the end of the peer's process ends the lane, if the kernel here tells it.
    pub(super) fn watch_process(&mut self, id: LaneId, process: &Process) {
        match process.watch() {
            Watch::Runs(descriptor) => {
                let sign = Sign::Process(process.pid);
                if let Err(error) = self.deaths.watch(id.key(), sign, descriptor) {
                    tracing::debug!(pid = process.pid, %error, "the end of a peer's process will not be told");
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

    /// Whether the end of the peer's process will be told.
    pub(crate) fn is_watched(&self, id: LaneId) -> bool {
        self.deaths.is_watched(id.key())
    }

    /// From now on the end of a connection that the peer's process holds ends the lane, and this side holds it, too.
    pub(crate) fn watch_connection(&mut self, id: LaneId, connection: OwnedFd) {
        if self.lane(id).is_none() {
            return;
        }
        self.deaths.forget(id.key());
        if let Err(error) = self.deaths.watch(id.key(), Sign::Connection, connection) {
            tracing::debug!(%error, "the end of a peer's connection will not be told");
        }
    }

    /// This side holds a connection as long as the lane, for the peer, which may watch it; to this side its end says nothing.
    pub(crate) fn hold_connection(&mut self, id: LaneId, connection: OwnedFd) {
        if self.lane(id).is_some() {
            self.deaths.forget(id.key());
            self.deaths.hold(id.key(), connection);
        }
    }

    /// This process, as its peers know it.
    pub(crate) fn process(&self) -> Process {
        self.alive.process
    }

    /// As if it were on another host.
    #[cfg(test)]
    pub(crate) fn move_elsewhere(&mut self) {
        self.alive.process.boot = [0xee; 16];
    }

    /// Who did not listen cannot tell that nothing was said: a process that was stopped gives its peers their time, and
    /// what it finds ended is no loss of theirs. It comes before anybody is told of ends.
    pub(super) fn notice_absence(&mut self, now: Instant) {
        let Alive { heartbeat, patience, driven, beats, .. } = self.alive;
        self.alive.driven = now;
        let gap = now.saturating_duration_since(driven);
        // Peers bear silence for at least so long after the last beat; it is more than the time between two looks.
        if gap < heartbeat.saturating_add(patience.hasty.min(patience.peer_timeout / 2)) {
            return;
        }
        if beats {
            self.alive.away = Some((now, gap));
        }
        for (_, place) in &mut self.lanes {
            match place {
                // Peers do not take the silence of one that its callers drive for a loss.
                Place::Open(lane) if beats => lane.back(now, gap),
                Place::Open(lane) => lane.heard(now),
                _ => {}
            }
        }
    }

    /// Notes which peers have died, before what they have sent is taken; whether one has.
    pub(super) fn look_for_deaths(&mut self, now: Instant) -> bool {
        let Self { deaths, lanes, .. } = self;
        let mut any = false;
        deaths.look(now, |key, sign| {
            any = true;
            let place = lanes.get_mut(LaneId::index_of(key));
            if let Some((_, Place::Open(lane))) = place {
                lane.process_ended(sign.into());
            }
        });
        any
    }

    /// Beats where nothing else was said, and ends lanes whose peers are silent.
    ///
    /// `heard_all` tells that no completion is left that may be a sign of life.
    pub(super) fn keep_alive(&mut self, now: Instant, heard_all: bool) {
        let Alive { heartbeat, patience, .. } = self.alive;
        for (_, place) in &mut self.lanes {
            let Place::Open(lane) = place else { continue };
            lane.beat(now, heartbeat);
            if heard_all {
                lane.listen(now, patience);
            }
            lane.settle();
        }
    }

    /// When [`keep_alive`](Self::keep_alive) has something to do.
    pub(super) fn next_sign_of_life(&self) -> Option<Instant> {
        let Alive { heartbeat, patience, .. } = self.alive;
        let due = |lane: &Lane| [lane.beat_at(heartbeat), lane.lost_at(patience)].into_iter().flatten().min();
        self.lanes
            .iter()
            .filter_map(|(_, place)| match place {
                Place::Open(lane) => due(lane),
                _ => None,
            })
            .min()
    }
}

impl LaneId {
    /// A number that no other lane has.
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
