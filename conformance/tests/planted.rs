//! Each of ten planted faults of the software device must be caught by the case that is named for it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use conformance::{Case, Lab, Outcome, cases, run};
use rdma_core::fault::{Planted, plant};
use rdma_core::{Device, SoftOptions, Wire};

/// Each planted fault, with the case that catches it.
const CAUGHT_BY: [(Planted, &str); 10] = [
    (Planted::RangeWrap, "access::a_range_whose_end_wraps"),
    (Planted::ForeignKey, "access::a_key_of_another_domain"),
    (Planted::MissingFlush, "access::receives_of_the_peer_are_flushed"),
    (Planted::DoubleCompletion, "batch::every_completion_comes_once"),
    (Planted::OutOfOrder, "batch::posts_everything_in_order"),
    (Planted::LostCredit, "send::arrive_in_order"),
    (Planted::MissingRnr, "receive_not_ready::a_send_fails_when_its_retries_are_used_up"),
    (Planted::NoError, "access::both_queue_pairs_end_in_err"),
    (Planted::WriteAfterDeregistration, "access::a_write_after_deregistration"),
    (Planted::WrongImmediate, "write_imm::lands_and_tells_the_peer"),
];

fn outcome(planted: Option<Planted>, wire: Wire, case: Case) -> Outcome {
    plant(planted);
    let device = Device::soft(SoftOptions { wire, ..SoftOptions::default() });
    let mut lab = Lab::open(&device, None).unwrap();
    // Some faults show as silence, so the wait for completions that never come must be short.
    lab.patience = Duration::from_secs(if planted.is_some() { 3 } else { 60 });
    let mut report = run(&Arc::new(lab), &[case], |_, _| {});
    report.outcomes.remove(0).1
}

fn all_are_caught(wire: Wire) {
    // A fault is planted in all devices of the process.
    static PLANTING: Mutex<()> = Mutex::new(());
    let _planting = PLANTING.lock();
    let cases = cases::all();
    for (planted, name) in CAUGHT_BY {
        let case = *cases.iter().find(|case| case.name == name).unwrap();
        assert_eq!(outcome(None, wire, case), Outcome::Passed, "{name} without a fault");
        let caught = outcome(Some(planted), wire, case);
        assert!(matches!(caught, Outcome::Failed(_)), "{planted:?} went through {name}: {caught:?}");
        println!("{planted:?} is caught by {name}: {caught:?}");
    }
}

#[test]
fn each_is_caught_on_the_wire_that_is_taken_by_itself() {
    all_are_caught(Wire::Auto);
}

#[test]
fn each_is_caught_on_the_local_wire() {
    all_are_caught(Wire::Local);
}

#[test]
fn each_is_caught_on_the_mapped_wire() {
    all_are_caught(Wire::Mapped);
}

#[test]
fn each_is_caught_over_tcp() {
    all_are_caught(Wire::Tcp);
}

#[test]
fn every_fault_has_its_case() {
    for planted in Planted::ALL {
        assert_eq!(CAUGHT_BY.iter().filter(|(fault, _)| *fault == planted).count(), 1, "{planted:?}");
    }
}
