//! Ranks of a collective's program, of which one is killed, or stopped and resumed.

use std::ops::RangeInclusive;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use examples::collectives::Collective;
use rustix::process::Signal;

use crate::common::{Ended, LONG, Running, free_port, program, start_with};
use crate::seed::Random;
use crate::strangers::beside_strangers;
use crate::verdict::{Place, checked_rows, final_error, named, place};
use crate::{
    Over, SOFT, TIMEOUT, alone, count, device, end_of_killed_within, end_of_stopped_within, header, is_full,
    joins_slowly, kills, wire,
};

/// Tables of very many rows, each of many operations, which take most of the time, and a check of every element: some
/// in pieces, or around the ring over TCP, and some that ranks of one host do without the engine.
pub const WORKLOADS: [&str; 2] = ["-b 64K -e 4M -i 4 -n 50 -w 0 -c 1", "-b 8 -e 64K -i 8 -n 2000 -w 0 -c 1"];
/// A rank that was stopped for so long says for how long: a heartbeat and a second. Near their deadlines the others
/// give a silent rank up earlier.
const NOTICED: Duration = Duration::from_millis(1500);
/// The fault comes within that much of the first row.
const MOMENTS: Duration = Duration::from_millis(800);

/// A fault, and the job that meets it.
struct Fault {
    name: &'static str,
    collective: Collective,
    ranks: RangeInclusive<u32>,
    victims: u32,
    /// Flags besides the workload's.
    flags: &'static str,
    timeout: Duration,
}

const KILL: Fault = Fault {
    name: "kill",
    collective: Collective::AllReduce,
    ranks: 2..=4,
    victims: 1,
    flags: "",
    timeout: TIMEOUT,
};

/// A job under way, and what is to be done to it.
struct Scene {
    collective: Collective,
    survivors: Vec<(u32, Running)>,
    victims: Vec<(u32, Running)>,
    timeout: Duration,
    /// Where the ranks meet.
    port: u16,
    /// How to see this round again.
    round: String,
}

impl Scene {
    /// Starts the ranks, and waits for a random moment after the first row.
    fn begin(fault: &Fault, round: u32) -> Self {
        let Fault { name, collective, ref ranks, victims, timeout, .. } = *fault;
        let mut random = Random::of(name, round);
        let (least, most) = (*ranks.start(), *ranks.end());
        let world = least + random.below(most + 1 - least);
        let first = random.below(world);
        let wire = wire(round);
        let root = if collective.is_rooted() { random.below(world) } else { 0 };
        let (program, seed) = (collective.name(), random.seed());
        // Memory of the library's, or of the program's own.
        let memory = ["", "--plain"][random.below(2) as usize];
        let mut text = format!(
            "{name}, round {round}, SOAK_SEED={seed}: {program} {memory}, wire {wire}, root {root}, of {world} ranks"
        );
        let port = free_port();
        let workload = WORKLOADS[round as usize / 2 % WORKLOADS.len()];
        let flags = format!("{workload} {memory} -r {root} --wire {wire} {}", fault.flags);
        let ranks = job(collective, world, port, &flags, timeout);
        let mut survivors: Vec<(u32, Running)> = (0..).zip(ranks).collect();
        wait_for_row(&mut survivors);
        assert!(survivors[0].1.stdout().contains(&header(wire)), "{text}: {}", survivors[0].1.stdout());
        let mut taken = vec![first as usize];
        while taken.len() < victims as usize {
            let other = random.below(world) as usize;
            if !taken.contains(&other) {
                taken.push(other);
            }
        }
        // From behind, so that the places of the others stay.
        taken.sort_unstable_by(|one, other| other.cmp(one));
        let victims: Vec<_> = taken.into_iter().map(|place| survivors.remove(place)).collect();
        victims.iter().for_each(|(rank, _)| text.push_str(&format!(" {rank}")));
        sleep(random.within(MOMENTS));
        Self { collective, survivors, victims, timeout, port, round: text }
    }

    /// Does it to all victims at once.
    fn signal(&self, signal: Signal) -> Instant {
        let since = Instant::now();
        self.victims.iter().for_each(|(_, victim)| victim.signal(signal));
        since
    }

    /// Checks that every survivor has ended in time, by an error that names victims alone and says where it ended.
    fn check_survivors(self, since: Instant, within: fn(Duration) -> Duration) -> Checked {
        let Self { collective, survivors, victims, timeout, round, .. } = self;
        let mut places = Vec::new();
        let ended: Vec<(u32, Ended)> =
            survivors.into_iter().map(|(rank, survivor)| (rank, survivor.finish())).collect();
        let after = since.elapsed();
        let texts: String = ended.iter().map(|(rank, ended)| format!("\n{rank}: {}", ended.stderr)).collect();
        for (rank, ended) in &ended {
            assert_eq!(
                ended.status.code(),
                Some(1),
                "{round}; rank {rank} goes on as if nothing was:{texts}"
            );
            let error = final_error(ended, collective, *rank);
            places.push(place(&error, collective));
            let named = named(&error);
            assert!(!named.is_empty(), "{round}; rank {rank} names nobody:{texts}");
            let is_victim = |rank: &u32| victims.iter().any(|(victim, _)| victim == rank);
            assert!(named.iter().all(is_victim), "{round}; rank {rank} names others:{texts}");
            checked_rows(&ended.stdout);
        }
        assert!(after < within(timeout), "{round}; survivors end after {after:?}:{texts}");
        Checked { victims, round, places }
    }
}

/// The rest of a scene when the survivors have ended.
struct Checked {
    victims: Vec<(u32, Running)>,
    round: String,
    places: Vec<Place>,
}

/// Checks that most survivors were in an operation, where they are most of the time. The ranks of one round are there
/// together, or not, so that it takes many rounds to tell; where there is a root, ranks that need nothing of the
/// victim go on without it.
fn assert_most_in_operations(fault: &Fault, places: &[Place]) {
    let inside = places.iter().filter(|place| **place == Place::Operation).count();
    println!("{inside} of {} survivors were in an operation", places.len());
    assert!(
        !is_full() || fault.collective.is_rooted() || inside * 2 >= places.len(),
        "most survivors say that they were in no operation: {places:?}"
    );
}

/// A job of `world` ranks.
pub fn job(collective: Collective, world: u32, port: u16, flags: &str, timeout: Duration) -> Vec<Running> {
    let (size, port) = (world.to_string(), port.to_string());
    let timeout = timeout * joins_slowly();
    let line = format!("{flags} --device {} -T {}", device(), timeout.as_secs());
    let rank = |rank: u32| {
        let rank = rank.to_string();
        let place = [("RANK", rank.as_str()), ("WORLD_SIZE", &size)];
        let store = [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &port)];
        start_with(program(collective), &line, &[place, store].concat())
    };
    (0..world).map(rank).collect()
}

/// Waits until the first row is measured and checked.
fn wait_for_row(ranks: &mut [(u32, Running)]) {
    let deadline = Instant::now() + LONG;
    while checked_rows(&ranks[0].1.stdout()) == 0 {
        assert!(Instant::now() < deadline, "no row after {LONG:?}");
        for (_, rank) in ranks.iter_mut() {
            assert!(rank.is_running(), "a rank ended before the first row: {}", rank.stderr());
        }
        sleep(Duration::from_millis(5));
    }
}

/// Kills victims in so many rounds.
fn kill(fault: &Fault, rounds: impl IntoIterator<Item = u32>) {
    let _alone = alone();
    let mut places = Vec::new();
    for round in rounds {
        let scene = Scene::begin(fault, round);
        let since = scene.signal(Signal::KILL);
        places.extend(scene.check_survivors(since, end_of_killed_within).places);
    }
    assert_most_in_operations(fault, &places);
}

/// Does something with each of `items`: two at a time where it is no soak, because each waits most of its time.
fn in_pairs<T: Sync, R: Send>(items: impl IntoIterator<Item = T>, each: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let at_once = if is_full() || device() != SOFT { 1 } else { 2 };
    let (items, each): (Vec<T>, _) = (items.into_iter().collect(), &each);
    let pair = |pair: &[T]| {
        thread::scope(|scope| {
            let begun: Vec<_> = pair.iter().map(|item| scope.spawn(move || each(item))).collect();
            begun
                .into_iter()
                .map(|one| one.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect::<Vec<R>>()
        })
    };
    items.chunks(at_once).flat_map(pair).collect()
}

/// Stops victims in so many rounds.
fn stop(fault: &Fault, rounds: impl IntoIterator<Item = u32>) {
    let told = in_pairs(rounds, |round| stop_and_resume(fault, *round)).concat();
    assert_most_in_operations(fault, &told);
}

/// Stops victims, and resumes them when the others have ended.
fn stop_and_resume(fault: &Fault, round: u32) -> Vec<Place> {
    let scene = Scene::begin(fault, round);
    let since = scene.signal(Signal::STOP);
    let Checked { victims, round: text, places } = scene.check_survivors(since, end_of_stopped_within);
    for (number, victim) in victims {
        let stopped = since.elapsed();
        victim.signal(Signal::CONT);
        let resumed = victim.finish();
        assert_eq!(resumed.status.code(), Some(1), "{text}; resumed, it goes on: {}", resumed.stderr);
        let error = final_error(&resumed, fault.collective, number);
        let fenced = error.contains("the other ranks went on without this one")
            && (stopped < NOTICED || error.contains("did not run for"))
            && named(&error).is_empty();
        assert!(fenced, "{text}; resumed, it ends with: {error}");
    }
    places
}

#[test]
fn survivors_of_a_killed_rank_name_it_and_no_other() {
    kill(&KILL, 0..kills());
}

#[test]
fn survivors_of_a_killed_rank_name_it_when_sums_are_reproducible() {
    kill(&Fault { name: "kill in a chain", flags: "--reproducible", ..KILL }, 0..count(20));
}

#[test]
fn survivors_of_two_ranks_that_are_killed_at_once_name_none_that_lives() {
    kill(&Fault { name: "kill two", ranks: 3..=5, victims: 2, ..KILL }, 0..count(20));
}

#[test]
fn survivors_of_a_killed_rank_name_it_while_strangers_flood_the_port() {
    let _alone = alone();
    for round in 0..count(20) {
        let scene = Scene::begin(&Fault { name: "kill among strangers", ..KILL }, round);
        beside_strangers(scene.port, || {
            let since = scene.signal(Signal::KILL);
            scene.check_survivors(since, end_of_killed_within);
        });
    }
}

#[test]
fn survivors_of_a_stopped_rank_name_it_and_it_ends_when_it_is_resumed() {
    let _alone = alone();
    stop(&Fault { name: "stop", ..KILL }, 0..count(20));
}

#[test]
fn a_stopped_rank_is_named_though_deadlines_are_shorter_than_peers_may_be_silent() {
    let _alone = alone();
    let timeout = Duration::from_secs(2);
    stop(&Fault { name: "stop with short deadlines", timeout, ..KILL }, 0..count(20));
}

/// Every collective but all-reduce, which the other tests kill.
fn others(name: &'static str, timeout: Duration) -> impl Iterator<Item = Fault> {
    let others = Collective::ALL.iter().filter(|&&collective| collective != KILL.collective);
    others.map(move |&collective| Fault { name, collective, timeout, ..KILL })
}

/// On each wire with each workload in a soak, and else so many on the first wire, with other workloads; one where each
/// takes long.
fn few(rounds: u32) -> impl Iterator<Item = u32> {
    let rounds = if device() == SOFT { rounds } else { 1 };
    if is_full() { (0..count(20)).step_by(1) } else { (0..2 * rounds).step_by(2) }
}

#[test]
fn survivors_of_a_rank_that_is_killed_in_any_collective_name_it() {
    others("kill in any collective", TIMEOUT).for_each(|fault| kill(&fault, few(2)));
}

#[test]
fn survivors_of_a_rank_that_is_stopped_in_any_collective_name_it() {
    // Their deadlines come before it is known who is silent.
    let _alone = alone();
    in_pairs(others("stop in any collective", Duration::from_secs(2)), |fault| stop(fault, few(1)));
}

/// Threads that leave no core idle.
fn busy<T>(cores: usize, meanwhile: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        let _until = Over(&over);
        meanwhile()
    })
}

#[test]
fn four_ranks_beside_busy_loops_are_not_taken_for_lost() {
    let _alone = alone();
    let span = if is_full() { Duration::from_secs(30) } else { Duration::from_secs(4) };
    let cores = thread::available_parallelism().map_or(2, usize::from);
    let hold = |wire: &str| {
        let mut ranks: Vec<_> = (0..)
            .zip(job(KILL.collective, 4, free_port(), &format!("{} --wire {wire}", WORKLOADS[0]), TIMEOUT))
            .collect();
        wait_for_row(&mut ranks);
        let until = Instant::now() + span;
        let before = checked_rows(&ranks[0].1.stdout());
        while Instant::now() < until {
            for (number, rank) in &mut ranks {
                assert!(rank.is_running(), "wire {wire}: rank {number} gave up: {}", rank.stderr());
            }
            sleep(Duration::from_millis(50));
        }
        assert!(checked_rows(&ranks[0].1.stdout()) > before, "wire {wire}: no row in all that time");
        assert!(ranks.iter().all(|(_, rank)| rank.stderr().is_empty()), "{}", ranks[0].1.stderr());
    };
    busy(cores, || (0..2).for_each(|turn| hold(wire(turn))));
}
