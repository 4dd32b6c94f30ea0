//! Looking for what other ranks leave, in the thread of the caller: for as long as it takes when they are there, and no longer.

use std::time::Duration;

use rdma_core::Deadline;

use crate::collective::communicator::HostGroup;

/// Patience in a row before others may run: about as long as a message is under way from a rank that is there.
const LOOKS: u32 = 500;
/// More of them, with the processor told that it waits; neither, and a quarter of those before, when that was in vain last.
const PATIENT_LOOKS: u32 = 500;
/// Patience where ranks are more than cores: whoever is waited for may be waiting for this one.
const CROWDED_LOOKS: u32 = 2;
/// Patience in a row for a message that was left, and is on its way.
const BRIEF_LOOKS: u32 = 32;
/// How long the caller's thread lets others run, before the engine takes over.
const YIELD_FOR: Duration = Duration::from_micros(300);

/// What a look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Polled {
    Done,
    /// Something has come, and more is to come.
    Further,
    Nothing,
    /// What is none of this operation: who tells the others is told of it, too.
    Wrong,
}

/// Patience for as long as a message takes that was left already, and once when looks were in vain last, or ranks are more than cores; whether it is there.
#[inline]
pub(super) fn poll_brief(host: &HostGroup, mut has_come: impl FnMut() -> bool) -> bool {
    let looks = if host.is_prompt() { BRIEF_LOOKS } else { 1 };
    (0..looks).any(|_| has_come())
}

/// Patience for as long as messages take when their ranks are there, again whenever something has come and as long as `goes_on`; whether it
/// is done, and `None` while that is open.
#[inline]
pub(super) fn spin_wait(
    host: &HostGroup,
    mut goes_on: impl FnMut() -> bool,
    mut look: impl FnMut() -> Polled,
) -> Option<bool> {
    let prompt = host.is_prompt();
    let (looks, patient) = match (prompt, host.is_roomy()) {
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
    // Ranks that share a core, or are more than there are cores, come when they are let.
    host.set_prompt(false);
    None
}

/// The same, and then lets others run for a while; whether it is done, before `deadline`.
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

/// Lets others run between its looks, `for_long` after the last that has found something; whether it is done, before `deadline`.
pub(super) fn yield_wait(
    for_long: Duration,
    deadline: Deadline,
    mut goes_on: impl FnMut() -> bool,
    mut look: impl FnMut() -> Polled,
) -> bool {
    let mut until = deadline.min(Deadline::after(for_long));
    while !until.expired() {
        // It may take as long as others like.
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
