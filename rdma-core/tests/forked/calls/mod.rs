//! Table of the calls that a child makes, by the items that they call.

mod memory;
mod peers;
mod verbs;

use std::collections::BTreeSet;
use std::fmt::Display;

use crate::fixture::Fixture;

/// The outcome of a call.
pub enum Outcome {
    Refused(String),
    Done,
    /// The device has no such object.
    Absent,
}

/// Promise of the library to a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// The error that says that the process was forked.
    Refused,
    /// Any result, because the call touches plain data or memory that both processes share.
    Harmless,
}

/// A call with the item of the API that it shows.
pub struct Call {
    pub item: &'static str,
    pub promise: Promise,
    pub run: fn(Fixture) -> Outcome,
}

/// Returns a call that must be refused.
const fn refused(item: &'static str, run: fn(Fixture) -> Outcome) -> Call {
    Call { item, promise: Promise::Refused, run }
}

/// Returns a call that may succeed.
const fn harmless(item: &'static str, run: fn(Fixture) -> Outcome) -> Call {
    Call { item, promise: Promise::Harmless, run }
}

/// Translates a result. Leaks a success, because a child must not have got one.
fn told<T, E: Display>(result: Result<T, E>) -> Outcome {
    match result {
        Ok(value) => {
            std::mem::forget(value);
            Outcome::Done
        }
        Err(error) => Outcome::Refused(error.to_string()),
    }
}

/// Outcome of a call that returns no error.
fn done<T>(_: T) -> Outcome {
    Outcome::Done
}

pub fn all() -> impl Iterator<Item = &'static Call> {
    verbs::CALLS.iter().chain(memory::CALLS).chain(peers::CALLS)
}

/// Types and modules of plain data: no object of theirs has a device behind it.
const PLAIN: [&str; 29] = [
    "Access::",
    "AckTimeout::",
    "Attached::range",
    "CompletionStatus::",
    "Deadline::",
    "DeviceAttributes::",
    "Gid::",
    "Mtu::",
    "NameFilter::",
    "Psn::",
    "Refused::",
    "RemoteMemory::",
    "RetryOptions::",
    "RnrRetry::",
    "RnrTimer::",
    "Segment::from",
    "Work::inline",
    "Work::into_segment",
    "Work::read",
    "Work::recv",
    "Work::send",
    "Work::unsignalled",
    "Work::with_",
    "Work::write",
    "doctor::",
    "error::",
    "fault::Rule::",
    "gid::",
    "memory::pinning::",
];

/// Returns whether `item` is plain data, the text of a value, or a default.
fn is_plain(item: &str) -> bool {
    item.ends_with("::fmt")
        || item.ends_with("::default")
        || PLAIN.iter().any(|plain| item.starts_with(plain))
}

#[test]
fn every_public_function_is_called_or_plain() {
    let listed = crate::items::listed();
    let called: BTreeSet<String> = all().map(|call| call.item.to_owned()).collect();
    let missing: Vec<_> = listed.iter().filter(|item| !called.contains(*item) && !is_plain(item)).collect();
    assert!(missing.is_empty(), "no child calls {missing:?}: add them to the table");
    let unknown: Vec<_> = called.iter().filter(|item| !listed.contains(*item)).collect();
    assert!(unknown.is_empty(), "not in public-api.txt: {unknown:?}");
    let unused: Vec<_> =
        PLAIN.iter().filter(|plain| !listed.iter().any(|item| item.starts_with(**plain))).collect();
    assert!(unused.is_empty(), "nothing begins with {unused:?}");
}
