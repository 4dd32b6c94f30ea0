//! A rank's process is killed or stopped at any moment of meeting, connecting, beginning and closing: the others end
//! soon, name that rank and no other, and keep nothing; and nothing of the job is left on the host.
//!
//! A soak (`SOAK=full`) does 300 kills and 400 stops, else there are a few of each; `SOAK_SEED` takes the seed that a
//! failure has printed.

#[path = "../common/mod.rs"]
mod common;
mod job;
mod rank;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use common::is_soak;
use job::{Job, News};
use rank::Point;
use rustix::process::Signal;

/// How late the end of a survivor may be, wherever this runs: far less than waits otherwise may.
const SLACK: Duration = Duration::from_secs(15);

/// The moment at which the victim is killed or stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Before it joins.
    Started,
    /// While it joins.
    Joining,
    /// After it has joined, and before it connects.
    Joined,
    /// While it connects to its neighbours.
    Connecting,
    /// While it leaves the store, and links all ranks.
    Linking,
    /// Right before its first operation.
    Linked,
    /// While it closes.
    Closing,
}

const PHASES: [Phase; 7] = [
    Phase::Started,
    Phase::Joining,
    Phase::Joined,
    Phase::Connecting,
    Phase::Linking,
    Phase::Linked,
    Phase::Closing,
];

impl Phase {
    /// The point that the victim comes to before.
    fn point(self) -> Point {
        match self {
            Self::Started | Self::Joining => Point::Started,
            Self::Joined | Self::Connecting => Point::Joined,
            Self::Linking => Point::Made,
            Self::Linked => Point::Linked,
            Self::Closing => Point::Reduced,
        }
    }

    /// Whether the victim waits at that point for its end.
    fn stays(self) -> bool {
        matches!(self, Self::Started | Self::Joined | Self::Linked)
    }

    /// The signal comes within that much of the point.
    fn span(self) -> Duration {
        Duration::from_millis(match self {
            Self::Started | Self::Joined | Self::Linked => 50,
            Self::Joining => 5,
            Self::Connecting => 10,
            Self::Linking => 5,
            Self::Closing => 1,
        })
    }
}

/// A job, and the end of one of its ranks.
#[derive(Debug)]
struct Case {
    phase: Phase,
    signal: Signal,
    wire: &'static str,
    ranks: u32,
    victim: u32,
    moment: Duration,
}

impl Case {
    /// Case `number` of a signal: all phases, wires, numbers of ranks and victims come up, whatever the seed.
    fn of(signal: Signal, number: u32, seed: u64) -> Self {
        let phase = PHASES[number as usize % PHASES.len()];
        let turn = number / PHASES.len() as u32;
        let wire = if (number + turn).is_multiple_of(2) { "mapped" } else { "tcp" };
        let ranks = 2 + turn % 3;
        let chance = mix(seed.wrapping_add(number.into()));
        // Early moments come more often: on a fast machine the phase is over soon.
        let part = f64::from(chance as u16) / f64::from(u16::MAX);
        let moment = phase.span().mul_f64(part * part);
        Self { phase, signal, wire, ranks, victim: ((chance >> 32) % u64::from(ranks)) as u32, moment }
    }

    /// Case `number` of a kill of rank 0 while four ranks leave the store, which it serves, and link each other: some
    /// are then still joining, and others in an operation already.
    fn of_the_server(number: u32, cases: u32) -> Self {
        let moment = Duration::from_micros(2500).mul_f64(f64::from(number) / f64::from(cases));
        let (phase, signal, wire) = (Phase::Linking, Signal::KILL, "mapped");
        Self { phase, signal, wire, ranks: 4, victim: 0, moment }
    }

    /// Case `number` of a stop in the midst of the last message to a mapped peer: both close at once.
    fn of_the_last_message(number: u32, cases: u32) -> Self {
        let moment = Duration::from_micros(25).mul_f64(f64::from(number) / f64::from(cases));
        let (phase, signal, wire) = (Phase::Closing, Signal::STOP, "mapped");
        Self { phase, signal, wire, ranks: 2, victim: number % 2, moment }
    }

    /// Whether a rank stays at the point of the phase until it may go on. All begin to close together.
    fn stays_at_point(&self, rank: u32) -> bool {
        rank == self.victim || self.phase == Phase::Closing
    }

    /// The time in which the ranks must have met. Short where the others find out by it alone, otherwise far longer
    /// than they take to find out.
    fn meet_within(&self) -> Duration {
        let is_awaited = self.phase.point() == Point::Started || self.signal == Signal::STOP;
        Duration::from_secs(if is_awaited { 4 } else { 40 })
    }

    /// The time after the signal in which a survivor has ended, if it had joined as well as the victim or not.
    fn within(&self, have_joined: bool) -> Duration {
        match self.signal == Signal::KILL && have_joined {
            true if is_soak() => Duration::from_secs(1),
            // Other processes of a busy machine come first.
            true => SLACK,
            // The ranks start one after the other, and each has a deadline of its own.
            false => self.meet_within() + SLACK,
        }
    }

    /// Runs the job, and returns what the survivors say.
    fn run(&self) -> Vec<String> {
        let mut job = Job::start(self);
        let victim = self.victim as usize;
        let point = self.phase.point();
        job.hear("the victim does not come there", |news| news[victim].point >= Some(point));
        // A rank that has not joined cannot know what becomes of another one.
        let all_at = if self.phase == Phase::Closing { point } else { point.min(Point::Joined) };
        job.hear("not all come there", |news| news.iter().all(|news| news.point >= Some(all_at)));
        if !self.phase.stays() {
            (0..self.ranks).filter(|rank| self.stays_at_point(*rank)).for_each(|rank| job.go_on(rank));
        }
        thread::sleep(self.moment);
        let at = Instant::now();
        job.signal(self.victim, self.signal);
        job.hear_survivors(self.victim);
        let said = (0..).zip(&job.news).filter(|(rank, _)| *rank != self.victim);
        let said = said.map(|(rank, news)| self.check(rank, news, &job.news[victim], at)).collect();
        job.end();
        said
    }

    /// Checks the end of a survivor, and returns it in short.
    fn check(&self, rank: u32, news: &News, victim: &News, at: Instant) -> String {
        let ended = news.ended.as_ref().expect("it was heard");
        let Some((named, text)) = &ended.error else {
            // The survivor had everything it needed.
            assert!(
                victim.point >= Some(Point::Linked) && self.phase != Phase::Linked,
                "rank {rank} has ended well"
            );
            return "well".to_owned();
        };
        assert!(victim.point != Some(Point::Closed), "rank {rank}, though the victim has closed: {text}");
        let have_joined = victim.point.min(news.point) >= Some(Point::Joined);
        // A rank that has not joined finds no store when rank 0 has ended because of the victim.
        let named_store = news.point < Some(Point::Joined) && named[..] == [0];
        assert!(named[..] == [self.victim] || named_store, "rank {rank} names {named:?}: {text}");
        let (after, within) = (ended.at.saturating_duration_since(at), self.within(have_joined));
        assert!(after < within, "rank {rank}, {after:?} after the signal: {text}");
        // Numbers differ from round to round.
        let words = text.chars().take_while(|char| *char != '(').filter(|char| !char.is_ascii_digit());
        let words: String = words.take(80).collect();
        format!("{} {words}…", if have_joined { "joined," } else { "not joined," })
    }
}

/// SplitMix64.
fn mix(seed: u64) -> u64 {
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Runs so many cases by number and seed, all of them even if some fail, and prints what the survivors have said.
fn assert_named(cases: u32, case: impl Fn(u32, u64) -> Case) {
    let seed = match std::env::var("SOAK_SEED") {
        Ok(seed) => seed.parse().expect("SOAK_SEED is a number"),
        Err(_) => std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64),
    };
    println!("SOAK_SEED={seed}");
    let mut told: BTreeMap<_, u32> = BTreeMap::new();
    let mut failed = 0;
    for number in 0..cases {
        let case = case(number, seed);
        match std::panic::catch_unwind(|| case.run()) {
            Ok(said) => said.into_iter().for_each(|said| {
                *told.entry(format!("{:?}: {said}", case.phase)).or_default() += 1;
            }),
            Err(_) => {
                failed += 1;
                println!("round {number} has failed: {case:?}");
            }
        }
    }
    told.into_iter().for_each(|(said, count)| println!("{count:4} × {said}"));
    assert_eq!(failed, 0, "of {cases} rounds, SOAK_SEED={seed}");
}

#[test]
fn a_rank_that_is_killed_while_ranks_meet_connect_and_close_is_named_by_all_others() {
    let cases = if is_soak() { 300 } else { 14 };
    assert_named(cases, |number, seed| Case::of(Signal::KILL, number, seed));
}

#[test]
fn rank_0_that_is_killed_while_ranks_leave_its_store_is_named_by_all_others() {
    let cases = if is_soak() { 300 } else { 40 };
    assert_named(cases, |number, _| Case::of_the_server(number, cases));
}

#[test]
fn a_rank_that_is_stopped_while_ranks_meet_connect_and_close_is_named_by_all_others() {
    let cases = if is_soak() { 100 } else { 7 };
    assert_named(cases, |number, seed| Case::of(Signal::STOP, number, seed));
}

#[test]
fn a_rank_that_is_stopped_in_the_midst_of_its_last_message_is_named_and_keeps_no_memory_of_the_other() {
    let cases = if is_soak() { 300 } else { 3 };
    assert_named(cases, |number, _| Case::of_the_last_message(number, cases));
}
