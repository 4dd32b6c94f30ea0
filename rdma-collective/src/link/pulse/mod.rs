//! Heartbeat and silence of one lane, computed from times that are passed in.
//!
//! Each end that has sent nothing for a while sends a heartbeat, so that silence has a meaning: the peer's process is
//! dead, stopped or cut off. Acknowledgements do not count as a sign of life, because a NIC acknowledges for a process
//! that is stopped, too. Sending the heartbeat and ending the lane are the lane's tasks.

use std::time::{Duration, Instant};

/// The limits on a peer's silence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// The longest silence of a peer that an operation waits for.
    pub(crate) peer_timeout: Duration,
    /// The longest silence shortly before the waiting operation's deadline, so that the operation ends with the name of
    /// the silent peer. Long enough for a living process to get a core.
    pub(crate) hasty: Duration,
    /// The time before the deadline at which `hasty` applies: the other ranks must still hear of the loss by then.
    pub(crate) notice: Duration,
}

/// The state of one lane's heartbeat: the last signs of life in both directions, and the operations that wait.
#[derive(Debug, Clone)]
pub(crate) struct Pulse {
    /// The last time at which something came from the peer's process, or at which this side listened again.
    heard: Instant,
    /// The last time at which something came from the peer's process.
    sign: Instant,
    /// The last time at which something was sent that reaches the peer's process.
    said: Instant,
    /// The time since which an operation waits for the peer. Silence from before it does not count.
    watched: Instant,
    /// Operations that wait for the peer.
    watchers: u32,
    /// The deadline of the waiting operations.
    until: Option<Instant>,
    /// Whether the peer's engine has a thread, which sends heartbeats whatever its callers do. Without a thread,
    /// silence means nothing and never becomes a failure.
    peer_beats: bool,
    /// The end of the last gap in which this side did not listen, and the length of the gap.
    away: Option<(Instant, Duration)>,
}

impl Pulse {
    pub(crate) fn new(now: Instant, peer_beats: bool) -> Self {
        Self {
            heard: now,
            sign: now,
            said: now,
            watched: now,
            watchers: 0,
            until: None,
            peer_beats,
            away: None,
        }
    }

    /// Notes a sign of life of the peer's process.
    pub(crate) fn heard(&mut self, now: Instant) {
        self.sign = self.sign.max(now);
        self.restart(now);
    }

    /// Has the peer's timeout start anew, because this side did not listen. No sign of life of the peer.
    pub(crate) fn restart(&mut self, now: Instant) {
        self.heard = self.heard.max(now);
    }

    /// The last sign of life of the peer's process.
    pub(crate) fn sign_at(&self) -> Instant {
        self.sign
    }

    pub(crate) fn heard_at(&self) -> Instant {
        self.heard
    }

    /// Notes that this side did not listen for `gap` and listens again. The peer's timeout starts anew.
    pub(crate) fn back(&mut self, now: Instant, gap: Duration) {
        self.restart(now);
        self.away = Some((now, gap));
    }

    /// The length of the last gap in which this side did not listen, unless the peer was heard more than one heartbeat
    /// after it. Only such a message shows that the peer goes on: an earlier one may have been sent during the gap.
    pub(crate) fn away(&self, beat: Duration) -> Option<Duration> {
        let (back, gap) = self.away?;
        back.checked_add(beat).is_none_or(|long_after| self.heard <= long_after).then_some(gap)
    }

    /// Notes that something was sent that reaches the peer's process.
    pub(crate) fn said(&mut self, now: Instant) {
        self.said = self.said.max(now);
    }

    /// Notes that an operation waits for the peer; from now on the peer's silence counts.
    pub(crate) fn watch(&mut self, now: Instant) {
        if self.watchers == 0 {
            self.watched = now;
        }
        self.watchers += 1;
    }

    /// Notes that an operation has stopped waiting.
    pub(crate) fn unwatch(&mut self) {
        self.watchers = self.watchers.saturating_sub(1);
        self.until = None;
    }

    /// Sets the deadline of the waiting operation.
    pub(crate) fn give_up_at(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// The time of the next heartbeat, if one is sent `every` so long after the last message.
    pub(crate) fn beat_at(&self, every: Duration) -> Option<Instant> {
        self.said.checked_add(every)
    }

    /// The time at which the peer's silence becomes a failure; `None` while no operation waits for it.
    ///
    /// The time is `peer_timeout` after the last sign of life. If the operation's deadline comes before, it is `notice`
    /// before the deadline, but at least `hasty` after the last sign of life.
    pub(crate) fn lost_at(&self, patience: Patience) -> Option<Instant> {
        if self.watchers == 0 || !self.peer_beats {
            return None;
        }
        let Patience { peer_timeout, hasty, notice } = patience;
        let silent_since = self.heard.max(self.watched);
        let late = self
            .until
            .and_then(|until| Some(until.checked_sub(notice)?.max(silent_since.checked_add(hasty)?)));
        silent_since.checked_add(peer_timeout).into_iter().chain(late).min()
    }

    /// The time since the last sign of life.
    pub(crate) fn silence(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.heard)
    }
}

#[cfg(test)]
mod tests;
