//! Processes that write an owner's memory without a pause while the owner takes that memory back, over and over. The
//! bytes that the owner then writes must stay, to the last one, whether the writers run, are killed, or are stopped
//! in the middle of a copy.
//!
//! A soak (`SOAK=full`) runs the full counts; otherwise a twentieth of them runs.

mod ground;
mod owner;
mod writer;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdma_core::fault::{Planted, plant};

use super::alone::alone;
use super::random::count;
use owner::{Fate, Owner, Revocation};

/// A byte of an old write that landed late: its position and time.
type Late = String;

const WRITERS: usize = 3;
/// Time within which the planted fault must show.
const CAUGHT_WITHIN: Duration = Duration::from_secs(60);

/// Takes memory back `rounds` times, by deregistration and by fence in turn.
fn attack(owner: &mut Owner, fate: Fate, rounds: u32) -> Result<(), Late> {
    let begun = Instant::now();
    for round in 0..rounds {
        let by = if round % 2 == 0 { Revocation::Deregister } else { Revocation::Fence };
        owner.round(fate, by).map_err(|late| format!("{late}; round {round}, {fate:?}, {by:?}"))?;
    }
    println!("{fate:?}: {rounds} rounds in {:?}: {}", begun.elapsed(), owner.told());
    Ok(())
}

/// Runs one attack at a time, because attacks measure how long things take.
fn one_at_a_time(test: impl FnOnce()) {
    static ATTACKING: Mutex<()> = Mutex::new(());
    let _attacking = ATTACKING.lock().unwrap_or_else(PoisonError::into_inner);
    test();
}

fn holds(fate: Fate, full: u32) {
    one_at_a_time(|| {
        let mut owner = Owner::new(WRITERS);
        let outcome = attack(&mut owner, fate, count(full));
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

/// A writer that gave up would leave the owner waiting for its writes.
#[test]
fn a_writer_waits_for_an_owner_that_is_late_and_then_notices_a_fence() {
    one_at_a_time(|| {
        let mut owner = Owner::new(1);
        owner.late = Duration::from_millis(500);
        for by in [Revocation::Deregister, Revocation::Fence] {
            assert_eq!(owner.round(Fate::Stopped, by), Ok(()));
        }
    });
}

/// These rounds also catch a device that does not wait. The fault is planted in all devices of a process of its own.
#[test]
fn an_early_return_is_caught() {
    one_at_a_time(|| {
        alone("attack::an_early_return_is_caught", || {
            plant(Some(Planted::EarlyReturn));
            each_early_return_is_caught(&mut Owner::new(WRITERS));
        });
    });
}

fn each_early_return_is_caught(owner: &mut Owner) {
    // A writer that is stopped in the middle of a copy goes on with it, so every round must be caught.
    for by in [Revocation::Deregister, Revocation::Fence] {
        let late = owner.round(Fate::Stopped, by).expect_err("a device that does not wait");
        println!("{by:?}, stopped: {late}");
    }
    // A running writer is in the middle of a copy by chance.
    for by in [Revocation::Deregister, Revocation::Fence] {
        let begun = Instant::now();
        let late = loop {
            if let Err(late) = owner.round(Fate::Runs, by) {
                break late;
            }
            assert!(begun.elapsed() < CAUGHT_WITHIN, "no round showed what the test is there to show");
        };
        println!("{by:?}, running, after {:?}: {late}", begun.elapsed());
    }
}
