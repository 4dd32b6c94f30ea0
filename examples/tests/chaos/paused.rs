//! All processes of several jobs, stopped and resumed together, as when a virtual machine pauses: nobody was there to
//! be silent, so that every job goes on.

use std::thread::sleep;
use std::time::{Duration, Instant};

use examples::collectives::Collective;
use rustix::process::Signal;

use crate::common::{LONG, Running, TOKEN, free_port, start_with};
use crate::kvcache::KVCACHE;
use crate::ranks::{WORKLOADS, job};
use crate::seed::Random;
use crate::verdict::checked_rows;
use crate::{alone, count, device, header, is_full, wire};

/// The pause, longer than the silence that is a loss, which is 3 s.
const PAUSE: Duration = Duration::from_millis(3_300);
/// The deadline of an operation, much longer than a pause, because a deadline passes in a pause, too.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest time between two processes that are stopped, or resumed.
const APART: Duration = Duration::from_millis(50);
/// The longest time that the jobs run between two pauses.
const BETWEEN: Duration = Duration::from_millis(500);

/// The time within which jobs meet, mostly.
const MEETING: Duration = Duration::from_millis(400);
/// Rows before the first, of both jobs that print rows.
const NONE: [usize; 2] = [0; 2];

/// A process, by a name.
type Process = (String, Running);

/// The ranks of an all-reduce, of which the first prints, more rows than there is time for.
fn ranks(world: u32, wire: &str, workload: &str) -> Vec<Process> {
    let ranks = job(Collective::AllReduce, world, free_port(), &format!("{workload} --wire {wire}"), TIMEOUT);
    (0..)
        .zip(ranks)
        .map(|(rank, running): (u32, _)| (format!("rank {rank} of {world}, {wire}"), running))
        .collect()
}

/// The two sides of transfers without an end, of which decode says where it runs.
fn sides(wire: &str) -> Vec<Process> {
    let transfers = format!("--prompt 256 --requests 100000000 --wire {wire}");
    let flags = format!("--device {} {transfers} -T {}", device(), TIMEOUT.as_secs());
    let port = free_port();
    let start = |role: &str| start_with(KVCACHE, &format!("{flags} --role {role}:{port}"), &[TOKEN]);
    let (decode, prefill) = (start("decode --listen 127.0.0.1"), start("prefill --peer 127.0.0.1"));
    vec![(format!("decode, {wire}"), decode), (format!("prefill, {wire}"), prefill)]
}

/// Four jobs, which have only just been started.
fn jobs() -> Vec<Process> {
    let [small, large] = ["-b 8 -e 1M -i 8 -n 200 -w 0 -c 1", WORKLOADS[0]];
    let jobs = [ranks(2, wire(0), small), ranks(4, wire(1), large), sides(wire(0)), sides(wire(1))];
    jobs.into_iter().flatten().collect()
}

/// Sends all of them a signal, in random order and a little apart.
fn signal(processes: &[Process], signal: Signal, random: &mut Random) {
    let mut order: Vec<&Process> = processes.iter().collect();
    while !order.is_empty() {
        let (_, process) = order.swap_remove(random.below(order.len() as u32) as usize);
        process.signal(signal);
        sleep(random.within(APART));
    }
}

/// Stops all of them, and resumes them after a pause.
fn pause(processes: &[Process], random: &mut Random) {
    signal(processes, Signal::STOP, random);
    sleep(PAUSE);
    signal(processes, Signal::CONT, random);
}

/// Rows of all ranks that print.
fn rows(processes: &[Process]) -> Vec<usize> {
    let first = processes.iter().filter(|(name, _)| name.starts_with("rank 0 "));
    first.map(|(_, running)| checked_rows(&running.stdout())).collect()
}

/// Waits until the two sides of each transfer have met.
fn wait_for_sides(processes: &mut [Process]) {
    for (name, decode) in processes {
        if let Some(wire) = name.strip_prefix("decode, ") {
            decode.wait_for(&header(wire));
        }
    }
}

/// Waits until each all-reduce has a row more than `before`, and fails the test when a process ends meanwhile.
fn assert_go_on(processes: &mut [Process], before: &[usize], round: &str) {
    let deadline = Instant::now() + LONG;
    while rows(processes).iter().zip(before).any(|(now, before)| now <= before) {
        assert_all_run(processes, round);
        assert!(Instant::now() < deadline, "{round}: no row after {LONG:?}");
        sleep(Duration::from_millis(5));
    }
    assert_all_run(processes, round);
}

fn assert_all_run(processes: &mut [Process], round: &str) {
    for (name, process) in processes {
        assert!(process.is_running() && process.stderr().is_empty(), "{round}: {name}: {}", process.stderr());
    }
}

#[test]
fn jobs_go_on_after_a_pause_of_all_processes() {
    let _alone = alone();
    let mut processes = jobs();
    wait_for_sides(&mut processes);
    assert_go_on(&mut processes, &NONE, "before all pauses");
    for round in 0..if is_full() { 20 } else { 1 } {
        let mut random = Random::of("pause", round);
        let text = format!("pause, round {round}, SOAK_SEED={}", random.seed());
        let before = rows(&processes);
        pause(&processes, &mut random);
        assert_go_on(&mut processes, &before, &text);
        sleep(random.within(BETWEEN));
        assert_all_run(&mut processes, &text);
    }
}

#[test]
fn jobs_begin_though_all_processes_pause_while_they_meet() {
    let _alone = alone();
    for round in 0..count(10) {
        let mut random = Random::of("pause of a beginning", round);
        let text = format!("pause of a beginning, round {round}, SOAK_SEED={}", random.seed());
        let mut processes = jobs();
        sleep(random.within(MEETING));
        pause(&processes, &mut random);
        wait_for_sides(&mut processes);
        assert_go_on(&mut processes, &NONE, &text);
    }
}
