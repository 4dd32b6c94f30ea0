//! The two sides of `kvcache_transfer`, of which one is killed, or stopped and resumed.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::{Ended, Running, TOKEN, free_port, start_with};
use crate::seed::Random;
use crate::{
    SOFT, TIMEOUT, alone, count, device, end_of_killed_within, end_of_stopped_within, header, is_full, kills,
    wire,
};

pub const KVCACHE: &str = env!("CARGO_BIN_EXE_kvcache_transfer");
/// The fault comes within that much of the connection; the transfer takes longer.
const MOMENTS: Duration = Duration::from_millis(60);
/// Transfers that may be over before the fault comes, for each that is not.
const TOO_LATE_MAX: u32 = 4;

/// The fault that the victim meets, and the time within which the survivor ends by it.
struct Fault {
    name: &'static str,
    signal: Signal,
    within: fn(Duration) -> Duration,
}

#[derive(Clone, Copy)]
struct Sides {
    victim: &'static str,
    survivor: &'static str,
}

const SIDES: [Sides; 2] =
    [Sides { victim: "prefill", survivor: "decode" }, Sides { victim: "decode", survivor: "prefill" }];

/// Tokens whose transfer takes longer than [`MOMENTS`]; an RDMA device that is emulated takes longer for fewer.
fn prompt() -> u32 {
    if device() == SOFT { 2048 } else { 256 }
}

/// A transfer under way over `wire`: the victim, the survivor, and how to see this round again.
fn begin(name: &str, round: u32, sides: Sides, wire: &str) -> (Running, Running, String) {
    let Sides { victim, survivor } = sides;
    let mut random = Random::of(&format!("{name} {victim}"), round);
    let text = format!("{name} {victim}, round {round}, SOAK_SEED={}: wire {wire}", random.seed());
    let flags = format!("--device {} --wire {wire} --prompt {} -T {}", device(), prompt(), TIMEOUT.as_secs());
    let port = free_port();
    let mut waits =
        start_with(KVCACHE, &format!("{flags} --role {survivor} --listen 127.0.0.1:{port}"), &[TOKEN]);
    let victim = start_with(KVCACHE, &format!("{flags} --role {victim} --peer 127.0.0.1:{port}"), &[TOKEN]);
    waits.wait_for(&header(wire)); // connected
    sleep(random.within(MOMENTS));
    (victim, waits, text)
}

/// Checks that the survivor ended in time and names the lost side, and that no byte stands where it should not;
/// `false` when the transfer was over before.
fn check(survivor: Running, sides: Sides, fault: &Fault, since: Instant, round: &str) -> bool {
    let ended = survivor.finish();
    let after = since.elapsed();
    if ended.status.success() {
        return false;
    }
    let Ended { status, stdout, stderr } = ended;
    assert_eq!(status.code(), Some(1), "{round}: {stderr}");
    let error = stderr.lines().last().unwrap_or_default();
    assert!(error.starts_with(sides.survivor) && error.contains("is lost"), "{round}: {stderr}");
    if sides.survivor == "decode" {
        assert!(stdout.contains("missing"), "{round}: {stdout}");
        assert!(stdout.contains("Other bytes changed  : 0 OK"), "{round}: {stdout}");
    }
    assert!(after < (fault.within)(TIMEOUT), "{round}; it ends after {after:?}: {stderr}");
    true
}

/// Kills of each side: in a soak as many as of ranks, else one on each wire, because each takes much memory and time.
fn kills_of_a_side() -> u32 {
    if is_full() { kills() } else { kills().min(2) }
}

/// Does it so often that `times` of the faults came in time.
fn each(fault: &Fault, times: u32, then: impl Fn(Running, Sides, &str)) {
    let name = fault.name;
    let _alone = alone();
    for sides in SIDES {
        let (mut done, mut round) = (0, 0);
        while done < times {
            assert!(round < times * TOO_LATE_MAX, "most transfers are over before the {name}");
            let (victim, survivor, text) = begin(name, round, sides, wire(done));
            let since = Instant::now();
            victim.signal(fault.signal);
            let in_time = check(survivor, sides, fault, since, &text);
            if in_time {
                then(victim, sides, &text);
                done += 1;
            }
            round += 1;
        }
    }
}

#[test]
fn the_other_side_of_one_that_is_killed_says_so() {
    let kill = Fault { name: "kill", signal: Signal::KILL, within: end_of_killed_within };
    each(&kill, kills_of_a_side(), |_, _, _| {});
}

#[test]
fn the_other_side_of_one_that_is_stopped_says_so_and_it_ends_when_it_is_resumed() {
    let then = |victim: Running, sides: Sides, round: &str| {
        victim.signal(Signal::CONT);
        let resumed = victim.finish();
        assert_eq!(resumed.status.code(), Some(1), "{round}; resumed, it goes on: {}", resumed.stderr);
        let error = resumed.stderr.lines().last().unwrap_or_default();
        // On a busy machine it is stopped for longer than its own deadline, which it then hears of first.
        let why =
            ["is lost in request", "has ended (", "the peer gave up request", "was not done at its deadline"];
        let says = error.starts_with(sides.victim) && why.iter().any(|why| error.contains(why));
        assert!(says, "{round}; resumed, it says neither that it was left nor by whom: {error}");
        println!("{round}; resumed: {error}");
    };
    let stop = Fault { name: "stop", signal: Signal::STOP, within: end_of_stopped_within };
    each(&stop, count(20), then);
}
