//! Polling in the caller's thread for messages of other ranks: how often, and when to give up.
//!
//! Polling pays only while the peers run at this moment. `HostGroup` remembers whether they did last time; the callers
//! decide what a poll looks at.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rdma_core::Deadline;

use crate::collective::communicator::HostGroup;

/// Polls in a row before the core is yielded: about as long as a message takes from a rank that is running. A quarter
/// of it if the last spin was in vain.
const LOOKS: u32 = 500;
/// Further polls, each with a spin-loop hint. None if the last spin was in vain.
const PATIENT_LOOKS: u32 = 500;
/// Polls in a row on a host with more ranks than cores. Only 2, because the awaited rank may be waiting for this core.
const CROWDED_LOOKS: u32 = 2;
/// Polls in a row for a message that may be on its way already.
const BRIEF_LOOKS: u32 = 32;
/// How long the caller's thread yields between polls before the engine takes over.
const YIELD_FOR: Duration = Duration::from_micros(300);

/// The result of one poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Polled {
    Done,
    /// Something has arrived, and more is to come.
    Further,
    Nothing,
    /// A message of another operation, or a refusal. The wait ends without success; the engine polls again, reports it
    /// to the other ranks, and returns the error.
    Wrong,
}

/// Polls for as long as a message takes that was already sent; returns whether it has arrived. Polls only once if the
/// last spin was in vain, or if the host has more ranks than cores.
#[inline]
pub(super) fn poll_brief(host: &HostGroup, mut has_come: impl FnMut() -> bool) -> bool {
    let looks = if host.prompt.load(Ordering::Relaxed) { BRIEF_LOOKS } else { 1 };
    (0..looks).any(|_| has_come())
}

/// Spins for as long as messages take from ranks that are running. Progress starts the spin anew while `goes_on` holds.
///
/// Returns whether the wait has succeeded, or `None` if the spin ended without an answer.
#[inline]
pub(super) fn spin_wait(
    host: &HostGroup,
    mut goes_on: impl FnMut() -> bool,
    mut look: impl FnMut() -> Polled,
) -> Option<bool> {
    let prompt = host.prompt.load(Ordering::Relaxed);
    let (looks, patient) = match (prompt, host.roomy) {
        (true, _) => (LOOKS, PATIENT_LOOKS),
        (false, true) => (LOOKS / 4, 0),
        (false, false) => (CROWDED_LOOKS, 0),
    };
    let mut number = 0;
    while number < looks + patient {
        number += 1;
        match look() {
            Polled::Nothing if number > looks => std::hint::spin_loop(),
            Polled::Nothing => {}
            Polled::Further if !goes_on() => return Some(false),
            Polled::Further => number = 0,
            ended => {
                if !prompt {
                    host.set_prompt(true);
                }
                return Some(ended == Polled::Done);
            }
        }
    }
    // The peers are not running, perhaps because this thread has their core. Spin less next time: that yields sooner.
    host.set_prompt(false);
    None
}

/// Like [`spin_wait`], and then yields for up to `YIELD_FOR`; returns whether the wait succeeded before `deadline`.
#[inline]
pub(super) fn spin_then_yield(
    host: &HostGroup,
    deadline: Deadline,
    mut goes_on: impl FnMut() -> bool,
    mut look: impl FnMut() -> Polled,
) -> bool {
    let mut goes_on = || goes_on() && !deadline.expired();
    match spin_wait(host, &mut goes_on, &mut look) {
        Some(done) => done,
        None => yield_wait(YIELD_FOR, deadline, goes_on, look),
    }
}

/// Yields the core between polls, until `for_long` has passed without progress; returns whether the wait succeeded
/// before `deadline`.
pub(super) fn yield_wait(
    for_long: Duration,
    deadline: Deadline,
    mut goes_on: impl FnMut() -> bool,
    mut look: impl FnMut() -> Polled,
) -> bool {
    let mut until = deadline.min(Deadline::after(for_long));
    while !until.expired() {
        // Other threads may keep the core for milliseconds, so each yield is followed by a look at the deadline.
        std::thread::yield_now();
        match look() {
            Polled::Nothing => {}
            Polled::Further if !goes_on() => return false,
            Polled::Further => until = deadline.min(Deadline::after(for_long)),
            ended => return ended == Polled::Done,
        }
    }
    false
}
