//! Two jobs of `allreduce` at one port, with as many ranks each, started in random orders: their ranks never meet.
//!
//! The table of rank 0 lists the process of each rank, so a mix shows there. An order is decided by its seed, which a
//! failure prints: set `SOAK_SEED` to it to see that failure again. A soak (`SOAK=full`) does all orders, another run a
//! few.

mod common;
#[path = "chaos/seed.rs"]
mod seed;

use common::{Ended, LONG, Running, TOKEN, free_port, listening, start_with};
use rdma_collective::bootstrap::meeting_ports;
use seed::Random;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

const ALLREDUCE: &str = env!("CARGO_BIN_EXE_allreduce");
const LINE: &str = "--device soft -b 8 -e 64K -f 16 -n 2 -w 0 -T 60";
const OTHER_TOKEN: (&str, &str) = ("RDMA_JOB_TOKEN", "00112233445566778899aabbccddeeff");
/// Orders of a soak, and of another run.
const ORDERS: [u32; 2] = [100, 4];
/// The longest pause between the starts of two processes: some ranks look for rank 0 meanwhile, others do not yet.
const PAUSE: Duration = Duration::from_millis(40);
/// The time after which two processes that both serve as rank 0 are taken to go on doing so.
const BOTH_SERVE: Duration = Duration::from_secs(5);
/// Orders that are tried beside each other, because most of their time the processes wait.
const AT_ONCE: u32 = 4;

/// Two jobs at one port.
struct Jobs {
    port: u16,
    ranks: usize,
    tokens: [Option<(&'static str, &'static str)>; 2],
    /// The processes that have been started, by job and rank.
    started: [Vec<Option<Running>>; 2],
    random: Random,
}

impl Jobs {
    fn new(name: &str, order: u32, tokens: [Option<(&'static str, &'static str)>; 2]) -> Self {
        let mut random = Random::of(name, order);
        let ranks = 2 + random.below(3) as usize;
        let port = free_port();
        println!("{name}, order {order}, SOAK_SEED={}: {ranks} ranks at port {port}", random.seed());
        let none = || (0..ranks).map(|_| None).collect();
        Self { port, ranks, tokens, started: [none(), none()], random }
    }

    /// All processes, in a random order.
    fn shuffled(&mut self) -> Vec<(usize, usize)> {
        let mut all: Vec<_> = (0..2).flat_map(|job| (0..self.ranks).map(move |rank| (job, rank))).collect();
        for end in (1..all.len()).rev() {
            all.swap(end, self.random.below(end as u32 + 1) as usize);
        }
        all
    }

    fn start(&mut self, (job, rank): (usize, usize), line: &str) {
        let (rank_text, ranks, port) = (rank.to_string(), self.ranks.to_string(), self.port.to_string());
        let mut variables = vec![
            ("RANK", rank_text.as_str()),
            ("WORLD_SIZE", &ranks),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", &port),
        ];
        variables.extend(self.tokens[job]);
        self.started[job][rank] = Some(start_with(ALLREDUCE, line, &variables));
        let pause = self.random.within(PAUSE);
        sleep(pause * self.random.below(2));
    }

    fn pids(&self, job: usize) -> Vec<u32> {
        self.started[job].iter().flatten().map(Running::id).collect()
    }

    /// Waits until both rank 0 are up: one has ended because of the other, or both serve and go on doing so.
    fn wait_for_both(&mut self) {
        let begun = Instant::now();
        let mut both_serve: Option<Instant> = None;
        loop {
            let ended = self.started.iter_mut().any(|job| !job[0].as_mut().unwrap().is_running());
            let listening = listening();
            let serving =
                meeting_ports(self.port, false).into_iter().filter(|port| listening.contains(port)).count();
            if serving >= 2 {
                both_serve.get_or_insert_with(Instant::now);
            }
            if ended || both_serve.is_some_and(|since| since.elapsed() > BOTH_SERVE) {
                return;
            }
            assert!(begun.elapsed() < LONG, "neither rank 0 ends, and {serving} serve");
            sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end of rank 0 of `job`, and fails if it ran with a rank of the other job.
    fn end_of_rank_0(&mut self, job: usize) -> Ended {
        let pids = self.pids(job);
        let ended = self.started[job][0].take().unwrap().finish();
        let listed = listed(&ended.stdout);
        assert!(
            listed.is_empty() || listed == pids,
            "job {job} of {pids:?} ran with {listed:?}:\n{}",
            ended.stdout
        );
        ended
    }
}

/// The processes of the ranks that the table lists.
fn listed(table: &str) -> Vec<u32> {
    let lines = table.lines().filter_map(|line| line.split_once(" Pid "));
    lines.map(|(_, rest)| rest.split_whitespace().next().unwrap().parse().unwrap()).collect()
}

/// Tries all orders, some beside each other.
fn each_order(attempt: impl Fn(u32) + Sync) {
    let is_full = std::env::var("SOAK").is_ok_and(|soak| soak == "full");
    let attempt = &attempt;
    thread::scope(|scope| {
        for first in 0..AT_ONCE {
            let orders = (first..ORDERS[usize::from(!is_full)]).step_by(AT_ONCE as usize);
            scope.spawn(move || orders.for_each(attempt));
        }
    });
}

/// Both rank 0 are up before the last rank joins: both jobs end, and each names the process that serves at the port.
fn assert_both_end(name: &str, token: Option<(&'static str, &'static str)>) {
    each_order(|order| {
        let mut jobs = Jobs::new(name, order, [token; 2]);
        let last = 1 + jobs.random.below(jobs.ranks as u32 - 1) as usize;
        let (late, early): (Vec<_>, Vec<_>) =
            jobs.shuffled().into_iter().partition(|(_, rank)| *rank == last);
        early.into_iter().for_each(|process| jobs.start(process, LINE));
        jobs.wait_for_both();
        late.into_iter().for_each(|process| jobs.start(process, LINE));
        let served = [0, 1].map(|job| jobs.started[job][0].as_ref().unwrap().id());
        for job in 0..2 {
            let told = jobs.end_of_rank_0(job).expect(1).stderr;
            // A job may end by two processes of one rank before the other rank 0 is there, which then serves.
            let names = |pid: &u32| told.contains(&format!("two jobs use one port: process {pid} on "));
            assert!(served.iter().any(names), "none of {served:?} is named: {told}");
        }
        // The ranks that heard of the other job say so; the others still look for a rank 0, and end with this test.
        for rank in jobs.started.iter_mut().flatten().flatten() {
            assert!(rank.stdout().is_empty());
        }
    });
}

#[test]
fn two_jobs_without_a_token_both_end_and_name_the_process_at_the_port() {
    assert_both_end("no token", None);
}

#[test]
fn two_jobs_with_one_token_both_end_and_name_the_process_at_the_port() {
    assert_both_end("one token", Some(TOKEN));
}

#[test]
fn two_jobs_with_tokens_of_their_own_both_run() {
    each_order(|order| {
        let mut jobs = Jobs::new("two tokens", order, [Some(TOKEN), Some(OTHER_TOKEN)]);
        for process in jobs.shuffled() {
            jobs.start(process, LINE);
        }
        for job in 0..2 {
            let ended = jobs.end_of_rank_0(job).expect(0);
            assert_eq!(listed(&ended.stdout).len(), jobs.ranks, "{}", ended.stdout);
            jobs.started[job].drain(..).flatten().for_each(|rank| drop(rank.finish().expect(0)));
        }
    });
}

#[test]
fn a_job_that_runs_is_not_disturbed_by_a_second_one() {
    let mut jobs = Jobs::new("a running job", 0, [None; 2]);
    let ranks = 0..jobs.ranks;
    ranks.clone().for_each(|rank| jobs.start((0, rank), "--device soft -b 1M -e 1M -n 100000000 -T 60"));
    jobs.started[0][0].as_mut().unwrap().wait_for("busbw");
    let holder = jobs.started[0][0].as_ref().unwrap().id();
    ranks.rev().for_each(|rank| jobs.start((1, rank), LINE));
    for rank in jobs.started[1].drain(..).flatten() {
        let told = rank.finish().expect(1).stderr;
        assert!(told.contains(&format!("two jobs use one port: process {holder} on ")), "{told}");
    }
    assert_eq!(listed(&jobs.started[0][0].as_ref().unwrap().stdout()), jobs.pids(0));
    assert!(jobs.started[0].iter_mut().flatten().all(Running::is_running), "the first job ended");
}
