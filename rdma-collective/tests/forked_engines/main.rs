//! Forked children: each public call is refused there or harmless, and the parent never notices.
//!
//! Threads of the parent use the engines meanwhile, so that a child inherits their locks in any state.

mod busy;
mod calls;
#[path = "../common/mod.rs"]
mod common;
mod fixture;
#[path = "../../../rdma-core/tests/forked/items.rs"]
mod items;
#[path = "../pair/mod.rs"]
mod pair;
#[allow(dead_code, reason = "the test of rdma-core uses the rest")]
#[path = "../../../rdma-core/tests/forked/raw.rs"]
mod raw;
#[path = "../world/mod.rs"]
mod world;

use std::time::Instant;

use calls::{Call, Outcome, Promise};
use fixture::{Busy, Fixture};
use raw::{End, Kind};
use rdma_core::Wire;

/// Exit codes of a child.
const KEPT: i32 = 0;
const NOT_REFUSED: i32 = 2;
const OTHER_ERROR: i32 = 3;

/// Makes the call in a child and returns what is wrong with its end; `None` if it ended as promised.
fn fault(kind: Kind, fixture: &Fixture, call: &Call) -> Option<String> {
    let end = raw::in_child_in_time(kind, fixture, |copy| match ((call.run)(copy), call.promise) {
        (_, Promise::Harmless) | (Outcome::Absent, _) => KEPT,
        (Outcome::Done, Promise::Refused) => NOT_REFUSED,
        (Outcome::Refused(text), Promise::Refused) if text.contains("was forked from the one that made") => {
            KEPT
        }
        (Outcome::Refused(text), Promise::Refused) => {
            raw::say(&format!("{}: {text}\n", call.item));
            OTHER_ERROR
        }
    });
    match end {
        End::Exit(KEPT) => None,
        End::Exit(NOT_REFUSED) => Some(format!("{kind:?}: {} was not refused", call.item)),
        end => Some(format!("{kind:?}: {} ended by {end:?}", call.item)),
    }
}

/// Makes one call in `step` in children of both kinds while threads of the parent use the engines.
fn check((fixture, busy): (Fixture, Busy), step: usize) {
    let kinds: &[Kind] = match raw::may_make_namespaces() {
        true => &[Kind::Forked, Kind::InNamespace],
        false => &[Kind::Forked],
    };
    let (begin, mut faults) = (Instant::now(), Vec::new());
    busy::meanwhile(busy, || {
        for call in calls::all().step_by(step) {
            faults.extend(kinds.iter().filter_map(|kind| fault(*kind, &fixture, call)));
        }
    });
    assert!(faults.is_empty(), "{} calls: {faults:#?}", faults.len());
    let children = calls::all().step_by(step).count() * kinds.len();
    println!("{children} children in {:?}", begin.elapsed());
    fixture.assert_whole();
}

/// Wires take turns, because no thread of the parent may start or end while a child is made: the standard
/// library takes a lock of its own then, and a child's thread would wait for the copy for ever.
#[test]
fn children_are_refused_on_every_wire() {
    for wire in [Wire::Local, Wire::Mapped, Wire::Tcp] {
        check(fixture::on_wire(wire), 1);
    }
}

#[test]
#[ignore = "needs a device"]
fn children_are_refused_on_a_device() {
    // A child takes long on an emulated processor, so a soak alone makes all calls.
    check(fixture::on_named_device(), if common::is_soak() { 1 } else { 3 });
}
