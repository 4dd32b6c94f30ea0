//! Processes that write an owner's memory without a pause while it takes the memory back from them, over and over: what
//! it then puts there stays, to the last byte, whether they run, are killed, or are stopped in the middle of a copy.
//!
//! A soak (`SOAK=full`) does the full counts, else there is a twentieth of them.

mod ground;
mod owner;
mod writer;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdma_core::fault::Planted;

use super::random::count;
use owner::{Fate, Owner, Way};

/// A byte of an old write, where and when.
type Late = String;

const WRITERS: usize = 3;
/// Within that the planted fault shows.
const CAUGHT_WITHIN: Duration = Duration::from_secs(60);

/// Takes memory back `rounds` times, by both ways in turn.
fn attack(owner: &mut Owner, fate: Fate, rounds: u32) -> Result<(), Late> {
    let begun = Instant::now();
    for round in 0..rounds {
        let way = if round % 2 == 0 { Way::Deregister } else { Way::Fence };
        owner.round(fate, way).map_err(|late| format!("{late}; round {round}, {fate:?}, {way:?}"))?;
    }
    println!("{fate:?}: {rounds} rounds in {:?}: {}", begun.elapsed(), owner.told());
    Ok(())
}

/// One attack at a time: they measure how long things take.
fn alone(planted: Option<Planted>, test: impl FnOnce(&mut Owner)) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    test(&mut Owner::new(planted, WRITERS));
}

fn holds(fate: Fate, full: u32) {
    alone(None, |owner| {
        let outcome = attack(owner, fate, count(full));
        assert_eq!(outcome, Ok(()), "SOAK_SEED={}", owner.seed());
    });
}

#[test]
fn nothing_lands_from_writers_that_run() {
    holds(Fate::Runs, 9000);
}

#[test]
fn nothing_lands_from_a_writer_that_is_killed() {
    holds(Fate::Killed, 500);
}

#[test]
fn nothing_lands_from_a_writer_that_is_stopped_in_the_middle_of_a_copy() {
    holds(Fate::Stopped, 500);
}

/// The same rounds find a device that does not wait.
#[test]
fn an_early_return_is_caught() {
    alone(Some(Planted::EarlyReturn), |owner| {
        // Whoever is stopped in the middle of a copy goes on with it: every single one is caught.
        for way in [Way::Deregister, Way::Fence] {
            let late = owner.round(Fate::Stopped, way).expect_err("a device that does not wait");
            println!("{way:?}, stopped: {late}");
        }
        // Whoever runs is in the middle of one by chance.
        for way in [Way::Deregister, Way::Fence] {
            let begun = Instant::now();
            let late = loop {
                if let Err(late) = owner.round(Fate::Runs, way) {
                    break late;
                }
                assert!(begun.elapsed() < CAUGHT_WITHIN, "no round showed what the test is there to show");
            };
            println!("{way:?}, running, after {:?}: {late}", begun.elapsed());
        }
    });
}
