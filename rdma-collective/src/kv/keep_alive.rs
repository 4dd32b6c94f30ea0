//! Deadlines that move by themselves while the peer is alive, up to a cap.
//!
//! A short deadline gets the blocks of a peer that is gone back soon. Kept alive, it does not strike a peer that only
//! works for long: the transfer lives for its period, counted from the last sign of the peer.

use std::time::{Duration, Instant};

use rdma_core::Deadline;

/// Heartbeats that a peer may be silent: three, because one may be late, and the peer must hear of the later deadline
/// before the earlier one passes.
const BEATS: u32 = 3;

/// Longest cap: a year, because `Instant` may overflow for more.
const CAP_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Keeping of one transfer's deadline.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeepAlive(Option<Kept>);

#[derive(Debug, Clone, Copy)]
struct Kept {
    /// The time to live that the transfer began with.
    period: Duration,
    /// The moment beyond which the deadline is not moved.
    latest: Instant,
    /// The moment at which to see next whether the peer was heard.
    look: Instant,
}

/// The signs of life of a peer: when it was last heard, and how long a living one is silent at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signs {
    pub(super) heard: Instant,
    pub(super) beat: Duration,
}

impl KeepAlive {
    /// Keeps the deadline of a transfer that begins `now` for at most `cap`; without a cap, or with one that is over by
    /// the deadline, does nothing.
    pub(super) fn new(cap: Option<Duration>, deadline: Deadline, now: Instant) -> Self {
        let period = deadline.instant().saturating_duration_since(now);
        let cap = cap.filter(|cap| *cap > period);
        Self(cap.map(|cap| Kept { period, latest: now + cap.min(CAP_MAX), look: now + period / 2 }))
    }

    /// The moment at which the deadline may have to be moved.
    pub(super) fn look(&self) -> Option<Instant> {
        self.0.map(|kept| kept.look)
    }

    /// Moves the deadline to a period after the last sign of the peer, if it is time to look and that is later. Returns
    /// whether the deadline has moved.
    pub(super) fn renew(&mut self, deadline: &mut Deadline, signs: Signs, now: Instant) -> bool {
        let Some(kept) = self.0.as_mut().filter(|kept| kept.look <= now) else { return false };
        let Signs { heard, beat } = signs;
        let until = heard.checked_add(kept.period.max(beat.saturating_mul(BEATS)));
        let until = until.map_or(kept.latest, |until| until.min(kept.latest));
        let moves = until > deadline.instant();
        if moves {
            *deadline = Deadline::at(until);
        }
        // Looks at a silent peer come closer together up to the deadline, so that one which is heard again is told in
        // time.
        let left = deadline.instant().saturating_duration_since(now);
        kept.look = now + (left / 2).max(beat / 2).min(left);
        if until == kept.latest {
            self.0 = None;
        }
        moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_millis(500);

    /// A kept transfer, its deadline, and a clock that counts milliseconds from its begin.
    fn kept(period: u64, cap: Option<u64>) -> (KeepAlive, Deadline, impl Fn(u64) -> Instant) {
        let start = Instant::now();
        let at = move |ms| start + Duration::from_millis(ms);
        let deadline = Deadline::at(at(period));
        (KeepAlive::new(cap.map(Duration::from_millis), deadline, start), deadline, at)
    }

    /// Looks whenever it is time, at a peer that gives a sign each heartbeat until it is silent. Returns the moments at
    /// which the deadline was moved, and the last deadline, in milliseconds.
    fn run(period: u64, cap: u64, silent: u64) -> (Vec<u64>, u64) {
        let (mut keep, mut deadline, at) = kept(period, Some(cap));
        let ms = |instant: Instant| instant.duration_since(at(0)).as_millis() as u64;
        let mut moved = Vec::new();
        while let Some(now) = keep.look().filter(|now| *now < deadline.instant()) {
            let heard = at(ms(now).min(silent) / 500 * 500);
            if keep.renew(&mut deadline, Signs { heard, beat: BEAT }, now) {
                moved.push(ms(now));
            }
            assert!(keep.look().is_none_or(|look| look > now), "looked at again for nothing");
        }
        (moved, ms(deadline.instant()))
    }

    #[test]
    fn a_short_deadline_lives_while_the_peer_is_heard_and_ends_a_period_after_its_last_sign() {
        // A period of less than three heartbeats counts as three.
        let (moved, until) = run(300, 60_000, 3200);
        assert_eq!((moved.first(), until), (Some(&150), 3000 + 1500));
        let (moved, until) = run(4000, 60_000, 9700);
        assert_eq!((moved.first(), until), (Some(&2000), 9500 + 4000));
        assert!(moved.len() < 10, "looks are half a period apart: {moved:?}");
    }

    #[test]
    fn the_deadline_of_a_silent_peer_stays_and_is_looked_at_a_few_times() {
        let (mut keep, mut deadline, at) = kept(8000, Some(60_000));
        let mut looks = 0;
        while let Some(look) = keep.look().filter(|look| *look < deadline.instant()) {
            assert!(!keep.renew(&mut deadline, Signs { heard: at(0), beat: BEAT }, look));
            looks += 1;
        }
        assert_eq!(deadline.instant(), at(8000));
        assert!(looks < 8, "{looks}");
        // Heard at the last moment.
        assert!(keep.renew(&mut deadline, Signs { heard: at(7900), beat: BEAT }, at(8000)));
        assert_eq!(deadline.instant(), at(15_900));
    }

    #[test]
    fn nothing_moves_a_deadline_beyond_the_cap() {
        let (moved, until) = run(300, 5000, u64::MAX);
        assert!(until == 5000 && moved.len() > 3, "{moved:?}, {until}");
        for cap in [None, Some(0), Some(300)] {
            let (mut keep, mut deadline, at) = kept(300, cap);
            let signs = Signs { heard: at(299), beat: BEAT };
            assert!(keep.look().is_none() && !keep.renew(&mut deadline, signs, at(299)));
        }
    }

    #[test]
    fn a_later_deadline_of_the_user_stays_and_is_kept_alive_in_its_turn() {
        let (mut keep, mut deadline, at) = kept(2000, Some(10_000));
        deadline = deadline.max(Deadline::at(at(6000)));
        let mut renew = |now, deadline: &mut Deadline| {
            keep.renew(deadline, Signs { heard: at(now), beat: BEAT }, at(now))
        };
        assert!(!renew(999, &mut deadline) && !renew(1000, &mut deadline) && deadline.instant() == at(6000));
        assert!(renew(5000, &mut deadline) && deadline.instant() == at(7000));
        assert!(renew(9000, &mut deadline) && deadline.instant() == at(10_000));
        deadline = Deadline::at(at(20_000));
        assert!(!renew(19_000, &mut deadline) && deadline.instant() == at(20_000));
    }
}
