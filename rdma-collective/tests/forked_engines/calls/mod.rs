//! Table of the calls that a child makes, by the items that they call.

mod bootstrap;
mod communicator;
mod kv;
mod nodes;
mod operations;
mod sources;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::task::Poll;

use crate::fixture::Fixture;

/// The outcome of a call.
pub enum Outcome {
    Refused(String),
    Done,
    /// The call is no call on the parent's device.
    Absent,
}

/// Promise of the library to a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// The error that says that the process was forked.
    Refused,
    /// Any result, because the call touches plain data, or something that the child makes anew.
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

/// Translates a poll. A call that stays pending is not refused.
fn polled<T, E: Display>(poll: Poll<Result<T, E>>) -> Outcome {
    match poll {
        Poll::Ready(result) => told(result),
        Poll::Pending => Outcome::Done,
    }
}

/// Outcome of a call that returns no error.
fn done<T>(_: T) -> Outcome {
    Outcome::Done
}

pub fn all() -> impl Iterator<Item = &'static Call> {
    communicator::CALLS
        .iter()
        .chain(operations::CALLS)
        .chain(kv::CALLS)
        .chain(nodes::CALLS)
        .chain(sources::CALLS)
        .chain(bootstrap::CALLS)
}

/// Types and modules of plain data: no engine, thread or connection is behind an object of theirs. `init_or_spawn`
/// starts this executable again, as ranks that are nobody's forked children.
const PLAIN: [&str; 27] = [
    "bootstrap::JobToken::",
    "bootstrap::RankList::",
    "bootstrap::meeting_ports",
    "collective::Algorithm",
    "collective::Communicator::init_or_spawn",
    "collective::CommunicatorError::",
    "collective::DataType::",
    "collective::ReduceOp::",
    "collective::Reduction::",
    "collective::Vectors::",
    "collective::tuning::",
    "env::Environment::",
    "env::Launch::",
    "env::Launcher::",
    "env::Namespace::",
    "env::NcclOptions::",
    "env::SelectedDevice::",
    "env::Variables::",
    "env::variables_table",
    "kv::Blocks::",
    "kv::Request::",
    "kv::RequestId::",
    "kv::LinkError::",
    "kv::TransferOutcome::",
    "kv::Verdicts::",
    "kv::layout::",
    "kv::plan::",
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
