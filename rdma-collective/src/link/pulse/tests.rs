//! Silent peers, late callers and due beats, at times that a test chooses.

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
    assert_eq!(pulse.sign_at(), start, "this side's own absence is no sign of the peer");
    pulse.heard(start + 10 * SECOND);
    assert_eq!(pulse.sign_at(), start + 10 * SECOND);
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
