//! The counts that a recorder is told, when it is told, and what it may do. The recorder is that of the test's thread.

mod sums;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::metrics as facade;
use facade::with_local_recorder;
use sums::{Seen, Sums};

use super::*;
use crate::log::Hold;
use crate::memory::FirstProcess;
use crate::{Access, Deadline, Device, SoftOptions, Work, WorkerOptions, loopback};

/// The sums of a recorder that calls `each` with each name.
fn seen_by(each: fn(&str), act: impl FnOnce(&Seen)) -> BTreeMap<String, f64> {
    let recorder = Sums { seen: Seen::default(), each };
    with_local_recorder(&recorder, || act(&recorder.seen));
    recorder.seen.lock().unwrap().clone()
}

fn of(pairs: &[(&str, f64)]) -> BTreeMap<String, f64> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

#[test]
fn counts_under_a_hold_are_added_up_and_told_when_it_ends() {
    let kept = Counter::new(&REFUSED, ["kept"]);
    let seen = seen_by(
        |_| {},
        |seen| {
            let hold = Hold::new();
            for _ in 0..10_000 {
                add(&REFUSED, ["range"], 2);
                change(&QUEUE_PAIRS, [], -1);
                kept.add(3);
            }
            assert_eq!(*seen.lock().unwrap(), of(&[]), "a lock may be held");
            drop(hold);
            kept.add(1);
        },
    );
    let (kept, added) =
        ("rdma_registrations_refused_total reason=kept", "rdma_registrations_refused_total reason=range");
    assert_eq!(seen, of(&[(kept, 30_001.0), (added, 20_000.0), ("rdma_queue_pairs", -10_000.0)]));
}

#[test]
fn a_recorder_that_panics_loses_that_count_alone() {
    let panics = |name: &str| assert!(!name.contains("planted"), "planted");
    let seen = seen_by(panics, |_| {
        let hold = Hold::new();
        add(&REFUSED, ["planted"], 1);
        add(&REFUSED, ["range"], 1);
        drop(hold);
        add(&REFUSED, ["planted"], 1);
        add(&REFUSED, ["range"], 1);
    });
    assert_eq!(seen, of(&[("rdma_registrations_refused_total reason=range", 2.0)]));
}

#[test]
fn a_recorder_may_call_the_library_and_its_own_counts_come_with_the_next() {
    let calls = |name: &str| {
        if name.contains("range") {
            let _lines = Hold::new();
            add(&REFUSED, ["in_use"], 1);
        }
    };
    let seen = seen_by(calls, |seen| {
        add(&REFUSED, ["range"], 1);
        assert_eq!(seen.lock().unwrap().len(), 1);
        add(&REFUSED, ["zero_length"], 1);
    });
    let name = |reason: &str| format!("rdma_registrations_refused_total reason={reason}");
    assert_eq!(seen, ["range", "in_use", "zero_length"].map(|reason| (name(reason), 1.0)).into());
}

#[test]
fn times_beyond_the_bound_are_left_out() {
    static TIMES: Metric = Metric::new(("rdma_test_seconds", Kind::Histogram, Unit::Seconds), &[], "A test.");
    let seen = seen_by(
        |_| {},
        |_| {
            let _hold = Hold::new();
            (0..5000).for_each(|_| seconds(&TIMES, [], Duration::from_secs(1)));
        },
    );
    assert_eq!(seen, of(&[("rdma_test_seconds", 1024.0)]));
}

#[test]
fn registrations_queue_pairs_and_errors_are_counted() {
    let seen = seen_by(
        |_| {},
        |seen| {
            let context = Device::soft(SoftOptions::default()).open().unwrap();
            let (pd, mut worker) =
                (context.alloc_pd().unwrap(), context.worker(WorkerOptions::default()).unwrap());
            let (left, right) = loopback(&mut worker, &pd).unwrap();
            let source = pd.alloc_local(100).unwrap();
            let refused = pd.alloc_region(100, Access::LOCAL_WRITE).unwrap();
            assert!(pd.alloc_local(0).is_err());
            assert!(pd.alloc_region(1, Access::REMOTE_WRITE).is_err());
            let other = context.alloc_pd().unwrap();
            assert!(other.export(&refused, Access::LOCAL_WRITE).is_err());
            worker.post(&left, Work::write(source, refused.remote())).unwrap();
            let ended = worker.wait(Deadline::after(Duration::from_secs(10))).unwrap();
            assert!(ended.result.is_err());
            let gauges =
                [("rdma_queue_pairs", 2.0), ("rdma_registered_bytes", 200.0), ("rdma_registrations", 2.0)];
            let now = seen.lock().unwrap().clone();
            assert!(gauges.iter().all(|(name, value)| now.get(*name) == Some(value)), "{now:?}");
            drop((ended, refused, right));
        },
    );
    let failed = |name: &str| seen.get(name).copied();
    assert_eq!(failed("rdma_completion_errors_total status=REM_ACCESS_ERR"), Some(1.0), "{seen:?}");
    assert_eq!(failed("rdma_requests_refused_total"), Some(1.0), "{seen:?}");
    assert_eq!(failed("rdma_registrations_refused_total reason=zero_length"), Some(1.0), "{seen:?}");
    assert_eq!(failed("rdma_registrations_refused_total reason=needs_local_write"), Some(1.0), "{seen:?}");
    assert_eq!(failed("rdma_registrations_refused_total reason=foreign_domain"), Some(1.0), "{seen:?}");
    for gauge in ["rdma_queue_pairs", "rdma_registered_bytes", "rdma_registrations"] {
        assert_eq!(failed(gauge), Some(0.0), "{gauge}: {seen:?}");
    }
}

#[test]
fn a_forked_child_tells_the_recorder_nothing() {
    let parent = FirstProcess::of_another_process();
    let seen = seen_by(|_| {}, |_| tell::add_in(&parent, &REFUSED, ["range"], 1));
    assert_eq!(seen, of(&[]));
}

#[test]
fn the_first_process_that_asks_stays_the_first() {
    let first = FirstProcess::new();
    assert!(first.is_here() && first.is_here());
    assert!(!FirstProcess::of_another_process().is_here());
}

#[test]
fn a_thread_that_ends_tells_what_it_has_kept() {
    let kept = Arc::new(Counter::new(&REFUSED, ["kept"]));
    let seen = seen_by(
        |_| {},
        |_| {
            // The recorder gives the handle here, because the other thread has another recorder.
            kept.add(1);
            let of_thread = Arc::clone(&kept);
            let ends = std::thread::spawn(move || {
                std::mem::forget(Hold::new());
                of_thread.add(2);
            });
            ends.join().unwrap();
            kept.add(4);
        },
    );
    assert_eq!(seen, of(&[("rdma_registrations_refused_total reason=kept", 7.0)]));
}

#[test]
fn what_a_line_counts_is_told_after_the_line() {
    let seen = seen_by(
        |_| {},
        |seen| {
            let of_line = Seen::clone(seen);
            crate::log::write(move || {
                add(&REFUSED, ["range"], 1);
                assert!(of_line.lock().unwrap().is_empty());
            });
            assert_eq!(seen.lock().unwrap().len(), 1);
        },
    );
    assert_eq!(seen, of(&[("rdma_registrations_refused_total reason=range", 1.0)]));
}

#[test]
fn the_handle_of_a_counter_is_dropped_after_the_last_hold() {
    let kept = Counter::new(&REFUSED, ["kept"]);
    seen_by(
        |_| {},
        |seen| {
            kept.add(1);
            let handles = || Arc::strong_count(seen);
            let with_handle = handles();
            let hold = Hold::new();
            drop(kept);
            assert_eq!(handles(), with_handle, "a lock may be held");
            drop(hold);
            assert!(handles() < with_handle);
        },
    );
}
