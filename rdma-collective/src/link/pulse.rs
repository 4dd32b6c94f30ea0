//! Whether the two ends of a lane still hear each other, by the time that is passed in.
//!
//! Each end that has said nothing for a while says that it lives, so that silence means something: the peer's process
//! is dead, stopped or cut off. Acknowledgements of the peer's device do not count, since it answers for a process that
//! is stopped, too. What is done about it is the lane's.

use std::time::{Duration, Instant};

/// How long silence is borne.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// How long a peer that is waited for may be silent.
    pub(crate) peer_timeout: Duration,
    /// The same when who waits is about to give up, so that the right one is named: long enough to wait for a core.
    pub(crate) hasty: Duration,
    /// How long before that this begins: word of it has to go around.
    pub(crate) notice: Duration,
}

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Pulse {
    /// When something came from the peer's process last.
    heard: Instant,
    /// When something was sent last that the peer's process hears.
    said: Instant,
    /// Since when somebody waits for the peer.
    watched: Instant,
    watchers: u32,
    /// When they give up at the latest.
    until: Option<Instant>,
    /// Whether the peer has a thread that says so whatever its callers do. Others may be silent as long as they like.
    peer_beats: bool,
    /// When this side listened again after it had not, and for how long it had not.
    away: Option<(Instant, Duration)>,
}

impl Pulse {
    pub(crate) fn new(now: Instant, peer_beats: bool) -> Self {
        Self { heard: now, said: now, watched: now, watchers: 0, until: None, peer_beats, away: None }
    }

    /// The peer's process has said something.
    pub(crate) fn heard(&mut self, now: Instant) {
        self.heard = self.heard.max(now);
    }

    pub(crate) fn heard_at(&self) -> Instant {
        self.heard
    }

    /// This side did not listen for as long as `gap`, and does so again: the peer has its time from now on.
    pub(crate) fn back(&mut self, now: Instant, gap: Duration) {
        self.heard(now);
        self.away = Some((now, gap));
    }

    /// How long this side did not listen, unless the peer has gone on with it since: it was heard more than a beat later,
    /// and so not by what it had said meanwhile.
    pub(crate) fn away(&self, beat: Duration) -> Option<Duration> {
        let (back, gap) = self.away?;
        back.checked_add(beat).is_none_or(|long_after| self.heard <= long_after).then_some(gap)
    }

    /// Something was sent that the peer's process will hear.
    pub(crate) fn said(&mut self, now: Instant) {
        self.said = self.said.max(now);
    }

    /// An operation waits for the peer: from now on it has to be heard.
    pub(crate) fn watch(&mut self, now: Instant) {
        if self.watchers == 0 {
            self.watched = now;
        }
        self.watchers += 1;
    }

    /// An operation waits no more.
    pub(crate) fn unwatch(&mut self) {
        self.watchers = self.watchers.saturating_sub(1);
        self.until = None;
    }

    /// Who waits gives up then, however long peers may be silent.
    pub(crate) fn give_up_at(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// When to say that this end lives, with a beat `every` so long.
    pub(crate) fn beat_at(&self, every: Duration) -> Option<Instant> {
        self.said.checked_add(every)
    }

    /// When the peer's silence becomes a failure; never while nobody waits for it.
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

    /// For how long nothing was heard.
    pub(crate) fn silence(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.heard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn patience(peer_timeout: Duration) -> Patience {
        Patience { peer_timeout, hasty: SECOND, notice: SECOND / 2 }
    }

    #[test]
    fn a_peer_that_nobody_waits_for_may_be_silent() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start, true);
        assert_eq!(pulse.lost_at(patience(3 * SECOND)), None);
        pulse.watch(start + SECOND);
        pulse.watch(start + 2 * SECOND);
        assert_eq!(
            pulse.lost_at(patience(3 * SECOND)),
            Some(start + 4 * SECOND),
            "since the first began to wait"
        );
        pulse.unwatch();
        assert_eq!(pulse.lost_at(patience(3 * SECOND)), Some(start + 4 * SECOND));
        pulse.unwatch();
        assert_eq!(pulse.lost_at(patience(3 * SECOND)), None);
        pulse.unwatch();
        pulse.watch(start + 9 * SECOND);
        assert_eq!(pulse.lost_at(patience(3 * SECOND)), Some(start + 12 * SECOND));
    }

    #[test]
    fn whatever_comes_from_the_peer_gives_it_time() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start, true);
        pulse.watch(start);
        pulse.heard(start + 2 * SECOND);
        assert_eq!(pulse.lost_at(patience(3 * SECOND)), Some(start + 5 * SECOND));
        pulse.heard(start + SECOND);
        assert_eq!(pulse.lost_at(patience(3 * SECOND)), Some(start + 5 * SECOND), "time does not run back");
        assert_eq!(pulse.silence(start + 3 * SECOND), SECOND);
        assert_eq!(pulse.lost_at(patience(Duration::MAX)), None);
    }

    #[test]
    fn who_was_away_knows_it_until_the_peer_is_heard_again() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start, true);
        pulse.watch(start);
        assert_eq!(pulse.away(SECOND), None);
        pulse.back(start + 9 * SECOND, 8 * SECOND);
        assert_eq!(pulse.lost_at(patience(3 * SECOND)), Some(start + 12 * SECOND));
        pulse.heard(start + 10 * SECOND);
        assert_eq!(pulse.away(SECOND), Some(8 * SECOND), "it may have said so before it went");
        pulse.heard(start + 11 * SECOND);
        assert_eq!(pulse.away(SECOND), None);
        pulse.back(start + 20 * SECOND, 5 * SECOND);
        assert_eq!(pulse.away(Duration::MAX / 2), Some(5 * SECOND));
    }

    #[test]
    fn shortly_before_who_waits_gives_up_a_silent_peer_is_lost_sooner() {
        let start = Instant::now();
        let lost_at = |until, heard| {
            let mut pulse = Pulse::new(start, true);
            pulse.watch(start);
            pulse.give_up_at(start + until);
            pulse.heard(start + heard);
            pulse.lost_at(patience(3 * SECOND)).unwrap() - start
        };
        assert_eq!(lost_at(5 * SECOND, SECOND), 4 * SECOND, "there is time");
        assert_eq!(lost_at(2 * SECOND, Duration::ZERO), 3 * SECOND / 2);
        assert_eq!(lost_at(2 * SECOND, SECOND), 2 * SECOND, "it may have to wait for a core");
        assert_eq!(lost_at(SECOND / 10, Duration::ZERO), SECOND);
        let mut pulse = Pulse::new(start, true);
        pulse.watch(start);
        pulse.give_up_at(start + 2 * SECOND);
        pulse.unwatch();
        pulse.watch(start + SECOND);
        assert_eq!(pulse.lost_at(patience(3 * SECOND)), Some(start + 4 * SECOND), "that was another");
    }

    #[test]
    fn a_peer_that_its_callers_drive_is_not_held_to_it() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start, false);
        pulse.watch(start);
        assert_eq!(pulse.lost_at(patience(SECOND)), None);
    }

    #[test]
    fn a_beat_is_due_when_nothing_else_was_said() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start, true);
        assert_eq!(pulse.beat_at(SECOND), Some(start + SECOND));
        pulse.said(start + SECOND / 2);
        assert_eq!(pulse.beat_at(SECOND), Some(start + 3 * SECOND / 2));
        assert_eq!(pulse.beat_at(Duration::MAX), None);
    }
}
