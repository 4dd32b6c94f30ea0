//! Ends that live, are silent, or die.

use super::*;

#[test]
fn a_dead_peer_is_noticed_though_nothing_is_sent_to_it() {
    let faults = FaultPlan::seeded(1);
    let (left, right) = join(end(None), end(Some(faults.clone())));
    // A completed request without a signal is reported by nobody, and must not count as one under way.
    left.with(|lane| lane.note(Imm::Freed { count: 1 }));
    right.until(|lane| lane.take());
    left.with(|lane| lane.watch(Instant::now()));
    std::thread::sleep(Duration::from_millis(30));
    left.until(|lane| lane.is_drained().then_some(()));
    assert!(left.with(|lane| lane.ended()).is_none(), "a peer that lives answers");
    faults.kill();
    let failure = left.until(|lane| lane.ended());
    assert!(matches!(failure, LaneFailure::Request(_)), "{failure}");
}

/// Two lanes whose operations wait for each other, and the time at which they began to.
fn watched() -> (End, End, Instant) {
    let (left, right) = pair();
    let start = Instant::now();
    for end in [&left, &right] {
        end.engine.drive(start, 64).unwrap();
        end.with(|lane| lane.watch(start));
    }
    (left, right, start)
}

#[test]
fn ends_that_have_nothing_to_say_beat_and_stay() {
    let (left, right, start) = watched();
    for round in 1..3000 {
        let now = start + round * Duration::from_millis(10);
        for end in [&left, &right] {
            assert!(end.engine.next_deadline().is_some_and(|due| due <= now), "in round {round}");
            end.engine.drive(now, 64).unwrap();
        }
    }
    for end in [&left, &right] {
        end.with(|lane| assert!(lane.ended().is_none() && lane.take().is_none(), "{:?}", lane.ended()));
        end.until(|lane| (lane.room() > 1).then_some(()));
    }
}

#[test]
fn a_peer_that_says_nothing_is_lost_when_its_time_is_over() {
    let (left, right, start) = watched();
    let step = Duration::from_millis(100);
    let lost_at = |from: Instant| {
        let steps = (1..100).map(|round| from + round * step);
        let mut driven = steps.inspect(|now| drop(left.engine.drive(*now, 64)));
        driven.find_map(|now| left.with(|lane| lane.ended()).map(|failure| (now, failure)))
    };
    // The last message counts from the time at which it is heard.
    left.engine.drive(start + step, 64).unwrap();
    right.with(|lane| lane.note(Imm::Freed { count: 1 }));
    let (now, failure) = lost_at(start + step).unwrap();
    let silence = now - start - 2 * step;
    assert!(matches!(failure, LaneFailure::Silent { since } if since == silence), "{failure}");
    assert_eq!(silence, EngineOptions::default().peer_timeout);
    assert!(left.with(|lane| lane.take()).is_some(), "what it had said is there");
}

#[test]
fn a_side_that_was_stopped_itself_gives_its_peer_time() {
    let (left, right, start) = watched();
    let later = start + Duration::from_secs(60);
    left.engine.drive(later, 64).unwrap();
    assert!(left.with(|lane| lane.ended()).is_none());
    let lost = left.with(|lane| lane.lost_at(EngineOptions::default().patience()));
    assert_eq!(lost, Some(later + EngineOptions::default().peer_timeout));
    drop(right);
}

#[test]
fn a_peer_that_only_its_callers_drive_may_be_silent_and_so_may_one_that_nobody_waits_for() {
    let (left, right) = (end(None), end(None));
    let blobs = (blob(&left), Blob { beats: false, ..blob(&right) });
    let start = Instant::now();
    left.engine.lock().connect_lane(left.lane, &blobs.1, start).unwrap();
    right.engine.lock().connect_lane(right.lane, &blobs.0, start).unwrap();
    left.with(|lane| lane.watch(start));
    for round in 1..100 {
        left.engine.drive(start + round * Duration::from_millis(100), 64).unwrap();
    }
    assert!(left.with(|lane| lane.ended()).is_none());
    // This side hears more heartbeats than it has credits for all the while, and is not lost by that.
    right.engine.drive(start + Duration::from_secs(10), 64).unwrap();
    assert!(right.with(|lane| lane.ended()).is_none());
}

/// Two lanes of which the left one takes a child of this process for the process of the right one.
fn with_child() -> (End, End, std::process::Child) {
    let child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let (left, right) = (end(None), end(None));
    let blobs = (blob(&left), Blob { process: Process::of(child.id()), ..blob(&right) });
    left.engine.lock().connect_lane(left.lane, &blobs.1, Instant::now()).unwrap();
    right.engine.lock().connect_lane(right.lane, &blobs.0, Instant::now()).unwrap();
    (left, right, child)
}

#[test]
fn the_end_of_a_peers_process_wakes_and_ends_the_lane_behind_what_it_had_said() {
    let (left, right, mut child) = with_child();
    left.engine.arm().unwrap();
    while left.engine.drive(Instant::now(), 64).unwrap() > 0 {}
    assert!(!is_woken(&left.engine, 0));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_woken(&left.engine, 900), "nobody is told of the death");
    right.with(|lane| lane.note(Imm::Freed { count: 1 }));
    let failure = left.until(|lane| lane.ended());
    assert!(matches!(failure, LaneFailure::Died { pid } if pid == child.id()), "{failure}");
    assert!(matches!(left.with(|lane| lane.take()), Some(Arrival::Imm(Imm::Freed { count: 1 }, 0))));
}

#[test]
fn a_process_that_closes_before_it_ends_has_left_in_good_order() {
    let (left, right, mut child) = with_child();
    assert!(right.engine.say_goodbye(&[right.lane], rdma_core::Deadline::after(Duration::from_secs(20))));
    child.kill().unwrap();
    child.wait().unwrap();
    let failure = left.until(|lane| lane.ended());
    assert!(matches!(failure, LaneFailure::Closed), "{failure}");
}

#[test]
fn a_side_that_leaves_takes_a_peer_that_is_silent_for_one_that_has_gone() {
    let (left, right, start) = watched();
    let options = EngineOptions::default();
    left.with(|lane| assert_eq!(lane.control(Kind::CLOSE, |_| Ok(())), Ok(true)));
    let listen = |since: Duration| {
        left.with(|lane| {
            lane.listen(start + since, options.patience());
            lane.ended()
        })
    };
    assert!(listen(options.peer_timeout / 2).is_none());
    let failure = listen(options.peer_timeout).unwrap();
    assert!(matches!(failure, LaneFailure::Closed), "{failure}");
    drop(right);
}

#[test]
fn an_engine_that_never_beats_has_no_time_to_do_it_at() {
    let engine = EngineOptions {
        heartbeat: Duration::MAX / 2,
        peer_timeout: Duration::MAX,
        driver: Driver::Caller,
        ..EngineOptions::default()
    };
    let engine = Engine::new(&Device::soft(SoftOptions::default()).open().unwrap(), engine).unwrap();
    let lane = engine.open_lane(0, OPTIONS).unwrap();
    let (left, right) = join(End { engine, lane }, end(None));
    left.with(|lane| lane.watch(Instant::now()));
    assert_eq!(left.engine.next_deadline(), None);
    right.with(|lane| lane.note(Imm::Freed { count: 1 }));
    left.until(|lane| lane.take());
}

#[test]
fn times_that_would_lose_peers_that_live_are_refused() {
    let context = Device::soft(SoftOptions::default()).open().unwrap();
    let second = Duration::from_secs(1);
    for (heartbeat, peer_timeout) in [(second / 10, second / 2), (second, second), (2 * second, 3 * second)] {
        let options = EngineOptions { heartbeat, peer_timeout, ..EngineOptions::default() };
        let error = Engine::new(&context, options).unwrap_err().to_string();
        assert!(error.contains(&format!("{peer_timeout:?}")), "{error}");
    }
}
