//! A process is killed at any moment of connecting, copying, waiting and closing: the other end of its link, on the
//! mapped wire, says soon who it was, and nothing of it stays. One test to a process, whose books it reads.
//!
//! A soak (`SOAK=full`) does 500 rounds, else there are 60; `SOAK_SEED` takes the seed that a failure has printed.

#[path = "../common/mod.rs"]
mod common;
#[path = "../pair/mod.rs"]
mod pair;
mod side;
mod victim;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use common::random::{self, Random};
use common::{assert_books, books, is_soak};
use side::{Role, Side};
use victim::Victim;

/// The survivor has said so within that much of the death.
const WITHIN: Duration = Duration::from_secs(5);

/// The work of both ends when one of them is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Killed before the other end connects.
    Prepared,
    Connect,
    Copy,
    /// Each waits for what the other does not do.
    Wait,
    /// The one closes, while the other waits.
    Close,
    /// Both close.
    CloseBoth,
}

/// How errors speak of it, and of its cause.
const ERRORS: [&str; 3] = ["was lost before it was connected", "is lost in request", "the link to"];
const CAUSES: [&str; 2] = ["has ended; see the end of its log", "the peer has closed the lane"];

const PHASES: [Phase; 6] =
    [Phase::Prepared, Phase::Connect, Phase::Copy, Phase::Wait, Phase::Close, Phase::CloseBoth];

impl Phase {
    /// The kill comes within that much of its beginning, and mostly before its end.
    fn span(self) -> Duration {
        Duration::from_micros(match self {
            Self::Prepared => 1,
            Self::Connect => 3000,
            Self::Copy | Self::Wait => 10_000,
            Self::Close | Self::CloseBoth => 600,
        })
    }
}

/// Kills one end at some moment of `phase`, and returns the survivor's errors.
fn round(side: &Side, role: Role, phase: Phase, seed: u64) -> [&'static str; 2] {
    let (prepared, blob) = side.prepare(role);
    let mut victim = Victim::start(role.other(), phase);
    let theirs = victim.blob();
    victim.say(&blob);
    let pid = victim.pid();
    let kill = |victim: Victim| {
        thread::sleep(Duration::from_micros(Random::of(seed).below(phase.span().as_micros() as u64)));
        let at = Instant::now();
        drop(victim);
        at
    };
    thread::scope(|scope| {
        let connect = || prepared.connect(&theirs);
        let (killed, outcome) = if phase == Phase::Prepared {
            let at = kill(victim);
            (scope.spawn(move || at), connect().and_then(|end| end.wait()))
        } else if phase == Phase::Connect {
            let killer = scope.spawn(|| kill(victim));
            let outcome = connect().and_then(|end| end.wait());
            (killer, outcome)
        } else {
            let end = connect().unwrap();
            if phase == Phase::Copy {
                end.transfer(1).unwrap();
            }
            if matches!(phase, Phase::Close | Phase::CloseBoth) {
                victim.say(&[]);
            }
            let killer = scope.spawn(|| kill(victim));
            let outcome = match phase {
                Phase::Copy => (2..).try_for_each(|request| end.transfer(request)),
                Phase::CloseBoth => {
                    drop(end);
                    Ok(())
                }
                _ => end.wait(),
            };
            (killer, outcome)
        };
        let ended = Instant::now();
        let killed = killed.join().unwrap();
        let after = ended.saturating_duration_since(killed);
        assert!(after < WITHIN, "{after:?} after the death");
        // Whoever drops its end is told of no error: that nothing stays of the other is in the books.
        if phase == Phase::CloseBoth {
            return ["closed", ""];
        }
        let early = killed.saturating_duration_since(ended);
        assert!(phase == Phase::Close || early.is_zero(), "{early:?} before the death: {outcome:?}");
        let told = outcome.expect_err("nothing was there to wait for");
        assert!(told.contains(&format!("process {pid}")), "it does not name the process {pid}: {told}");
        [&ERRORS[..], &CAUSES].map(|known| {
            let known = known.iter().find(|known| told.contains(**known));
            *known.unwrap_or_else(|| panic!("it does not say what became of it: {told}"))
        })
    })
}

#[test]
fn the_other_end_of_one_that_is_killed_names_it_and_keeps_nothing_of_it() {
    let seed = random::seed();
    let side = Side::new();
    // The first rounds fill what is kept for ever.
    let warm = 2 * PHASES.len() as u64;
    let mut before = BTreeMap::new();
    let mut told: BTreeMap<_, u32> = BTreeMap::new();
    for round in 0..warm + if is_soak() { 500 } else { 60 } {
        if round == warm {
            thread::sleep(Duration::from_millis(200));
            before = books();
        }
        let phase = PHASES[round as usize / 2 % PHASES.len()];
        let role = if round % 2 == 0 { Role::Prefill } else { Role::Decode };
        let said = self::round(&side, role, phase, seed.wrapping_add(round));
        *told.entry(format!("{phase:?}: {}", said.join(", "))).or_default() += 1;
        if round >= warm {
            assert_books(&before, &format!("after round {round}, {phase:?} of {role:?}, SOAK_SEED={seed}"));
        }
    }
    told.into_iter().for_each(|(said, count)| println!("{count:4} × {said}"));
}
