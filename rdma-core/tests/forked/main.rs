//! Forked children: each public call is refused there or harmless, and the parent never notices.
//!
//! Threads of the parent use the device meanwhile, so that a child inherits their locks in any state.

mod busy;
mod calls;
mod fixture;
mod items;
mod raw;

use std::time::Instant;

use calls::{Call, Outcome, Promise};
use fixture::Fixture;
use raw::{End, Kind};
use rdma_core::Wire;

/// Exit codes of a child.
const KEPT: i32 = 0;
const ABSENT: i32 = 1;
const NOT_REFUSED: i32 = 2;
const OTHER_ERROR: i32 = 3;

/// Makes the call in a child and returns what is wrong with its end; `None` if it ended as promised.
fn fault(kind: Kind, fixture: &Fixture, call: &Call, absent: &mut usize) -> Option<String> {
    let end = raw::in_child_in_time(kind, fixture, |copy| match ((call.run)(copy), call.promise) {
        (Outcome::Absent, _) => ABSENT,
        (_, Promise::Harmless) => KEPT,
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
        End::Exit(ABSENT) => {
            *absent += 1;
            None
        }
        End::Exit(NOT_REFUSED) => Some(format!("{kind:?}: {} was not refused", call.item)),
        end => Some(format!("{kind:?}: {} ended by {end:?}", call.item)),
    }
}

/// Makes every call in children of both kinds while threads of the parent use the device.
fn check(fixture: Fixture) {
    let kinds: &[Kind] = match raw::may_make_namespaces() {
        true => &[Kind::Forked, Kind::InNamespace],
        false => &[Kind::Forked],
    };
    let (context, begin) = (fixture.context.clone(), Instant::now());
    let (mut faults, mut absent) = (Vec::new(), 0);
    busy::meanwhile(&context, || {
        for (call, kind) in calls::all().flat_map(|call| kinds.iter().map(move |kind| (call, *kind))) {
            faults.extend(fault(kind, &fixture, call, &mut absent));
        }
    });
    assert!(faults.is_empty(), "{} calls: {faults:#?}", faults.len());
    let children = calls::all().count() * kinds.len();
    println!("{children} children, {absent} of them without the object, in {:?}", begin.elapsed());
    assert!(absent < children / 4, "{absent} of {children} calls had no object");
    fixture.assert_whole();
}

#[test]
fn children_are_refused_on_the_local_wire() {
    check(Fixture::on(Wire::Local));
}

#[test]
fn children_are_refused_on_the_mapped_wire() {
    check(Fixture::on(Wire::Mapped));
}

#[test]
fn children_are_refused_on_the_tcp_wire() {
    check(Fixture::on(Wire::Tcp));
}

#[test]
#[ignore = "needs a device"]
fn children_are_refused_on_a_device() {
    check(Fixture::on_named_device());
}

#[test]
fn a_child_opens_devices_where_its_parent_had_none() {
    let mut fresh = std::process::Command::new(std::env::current_exe().unwrap());
    fresh.args(["a_fresh_process_forks", "--exact", "--ignored", "--nocapture"]);
    assert!(fresh.status().unwrap().success());
}

#[test]
#[ignore = "another test starts it, in a process without a software device"]
fn a_fresh_process_forks() {
    assert_eq!(rdma_core::quarantined(), rdma_core::Quarantined::default());
    for wire in [Wire::Local, Wire::Mapped, Wire::Tcp] {
        let end = raw::in_child(Kind::Forked, &(), |()| {
            Fixture::on(wire).assert_whole();
            KEPT
        });
        assert_eq!(end, End::Exit(KEPT), "{wire:?}");
    }
    let mine = Fixture::on(Wire::Mapped);
    let end = raw::in_child(Kind::Forked, &(), |()| {
        i32::from(rdma_core::Device::soft(Default::default()).open().is_ok())
    });
    assert_eq!(end, End::Exit(KEPT), "the child shares its parent's devices");
    mine.assert_whole();
}

/// Parent and child have one pid, as in containers.
#[test]
fn children_are_refused_where_parent_and_child_have_one_pid() {
    if raw::may_make_namespaces() {
        assert!(raw::passes_as_first_process("children_are_refused_on_the_mapped_wire"));
    }
}
