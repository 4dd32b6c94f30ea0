//! All processes of several jobs, stopped and resumed together, as when a virtual machine pauses: nobody was there to
//! be silent, so that every job goes on.

use std::thread::sleep;
use std::time::{Duration, Instant};

use examples::collectives::Collective;
use rustix::process::Signal;

use crate::common::{LONG, Running, free_port, start};
use crate::kvcache::KVCACHE;
use crate::ranks::{WORKLOADS, job, wait_for_row};
use crate::seed::Random;
use crate::verdict::checked_rows;
use crate::{alone, count, device, header, wire};

/// The pause, longer than the silence that is a loss, which is 3 s.
const PAUSE: Duration = Duration::from_millis(3_500);
/// The deadline of an operation, much longer than a pause, because a deadline passes in a pause, too.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest time between two processes that are stopped, or resumed.
const APART: Duration = Duration::from_millis(50);
/// The longest time that the jobs run between two pauses.
const BETWEEN: Duration = Duration::from_millis(1_000);

/// A process, by a name.
type Process = (String, Running);

/// The ranks of an all-reduce, of which the first prints.
fn ranks(world: u32, wire: &str, workload: &str) -> Vec<Process> {
    let flags = format!("{workload} --wire {wire}");
    let ranks = job(Collective::AllReduce, world, free_port(), &flags, TIMEOUT);
    let mut ranks: Vec<(u32, Running)> = (0..).zip(ranks).collect();
    wait_for_row(&mut ranks);
    ranks.into_iter().map(|(rank, running)| (format!("rank {rank} of {world}, {wire}"), running)).collect()
}

/// The two sides of transfers without an end.
fn sides(wire: &str) -> Vec<Process> {
    let flags = format!(
        "--device {} --wire {wire} --prompt 256 --requests 100000000 -T {}",
        device(),
        TIMEOUT.as_secs()
    );
    let port = free_port();
    let mut decode = start(KVCACHE, &format!("{flags} --role decode --listen 127.0.0.1:{port}"));
    let prefill = start(KVCACHE, &format!("{flags} --role prefill --peer 127.0.0.1:{port}"));
    decode.wait_for(&header(wire));
    vec![(format!("decode, {wire}"), decode), (format!("prefill, {wire}"), prefill)]
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

/// Rows of all ranks that print.
fn rows(processes: &[Process]) -> Vec<usize> {
    let first = processes.iter().filter(|(name, _)| name.starts_with("rank 0 "));
    first.map(|(_, running)| checked_rows(&running.stdout())).collect()
}

fn assert_all_run(processes: &mut [Process], round: &str) {
    for (name, process) in processes {
        assert!(process.is_running() && process.stderr().is_empty(), "{round}: {name}: {}", process.stderr());
    }
}

#[test]
fn jobs_go_on_after_a_pause_of_all_processes() {
    let _alone = alone();
    let [small, large] = ["-b 8 -e 1M -i 8 -n 200 -w 0 -c 1", WORKLOADS[0]];
    let jobs = [ranks(2, wire(0), small), ranks(4, wire(1), large), sides(wire(0)), sides(wire(1))];
    let mut processes: Vec<Process> = jobs.into_iter().flatten().collect();
    for round in 0..count(100) {
        let mut random = Random::of("pause", round);
        let text = format!("pause, round {round}, SOAK_SEED={}", random.seed());
        signal(&processes, Signal::STOP, &mut random);
        sleep(PAUSE);
        let before = rows(&processes);
        signal(&processes, Signal::CONT, &mut random);
        // Each job goes on, by a row at least.
        let deadline = Instant::now() + LONG;
        while rows(&processes).iter().zip(&before).any(|(now, before)| now <= before) {
            assert_all_run(&mut processes, &text);
            assert!(Instant::now() < deadline, "{text}: no row after {LONG:?}");
            sleep(Duration::from_millis(5));
        }
        sleep(random.within(BETWEEN));
        assert_all_run(&mut processes, &text);
    }
}
