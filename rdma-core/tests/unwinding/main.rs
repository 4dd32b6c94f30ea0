//! Subscribers of the log that panic, and such that call back into the library, at every place that writes a line.
//!
//! The list of places comes from the sources ([`sources`]), and [`sites`] says how each is reached; a place without an
//! entry fails. Each case runs in a process of its own, once for each behaviour of the [`subscriber`]: no byte of the
//! caller's changes, the case returns, devices work afterwards, and the thread of the devices goes on.

#[path = "../tcp/end.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod end;

mod cases;
mod ground;
mod on_device;
mod raw;
mod sites;
mod sources;
mod stopped;
mod subscriber;

use std::collections::BTreeSet;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rdma_core::Wire;
use sites::{Reached, SITES, Site};
use subscriber::Behaviour;

/// The wire of [`end`].
const WIRE: Wire = Wire::Mapped;
/// A case takes seconds at most; one that takes this long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(180);
/// Processes beside each other; most of them wait most of the time.
const WIDTH: usize = 4;
/// Name the case and the behaviour to the process that runs them.
const CASE: &str = "RDMA_TEST_UNWINDING_CASE";
const BEHAVIOUR: &str = "RDMA_TEST_UNWINDING_BEHAVIOUR";

#[test]
fn the_table_has_every_place_that_writes_a_line() {
    let places = sources::sites();
    let written: BTreeSet<_> = places.iter().map(|site| (site.file.clone(), site.message.clone())).collect();
    assert_eq!(
        written.len(),
        places.len(),
        "a file has one text at two places, of which only one has a case"
    );
    let listed: BTreeSet<_> =
        SITES.iter().map(|site| (site.file.to_owned(), site.message.to_owned())).collect();
    assert_eq!(listed.len(), SITES.len(), "a place is listed twice");
    let without: Vec<_> = written.difference(&listed).collect();
    assert!(without.is_empty(), "no case in sites.rs for {without:#?}");
    let gone: Vec<_> = listed.difference(&written).collect();
    assert!(gone.is_empty(), "the sources do not have {gone:#?}");
    for site in SITES {
        let is_ibverbs = site.file.starts_with("backend/ibverbs/");
        assert_eq!(
            is_ibverbs,
            matches!(site.reached, Reached::OnDevice(_) | Reached::NotOnDevice(_)),
            "{site:?}"
        );
    }
}

#[test]
fn a_subscriber_that_unwinds_or_calls_back_costs_a_line_and_nothing_else() {
    let reached = |site: &&Site| matches!(site.reached, Reached::Here(_));
    let sites = SITES.iter().filter(reached);
    let runs: Vec<_> = sites.flat_map(|site| Behaviour::ALL.map(|behaviour| (site, behaviour))).collect();
    run_all(&runs, "a_case");
}

/// On a device of libibverbs, which `ROCE_DEVICE` names.
#[test]
#[ignore = "it needs an RDMA device: `cargo xtask soft-roce` runs it"]
fn on_a_device_it_costs_a_line_and_nothing_else() {
    let reached = |site: &&Site| matches!(site.reached, Reached::OnDevice(_));
    let sites = SITES.iter().filter(reached);
    let runs: Vec<_> = sites.flat_map(|site| Behaviour::ALL.map(|behaviour| (site, behaviour))).collect();
    run_all(&runs, "a_case");
    on_device::check();
}

/// Runs all cases, each in a process of its own, and panics with the failures of all.
fn run_all(runs: &[(&Site, Behaviour)], test: &str) {
    let next = AtomicUsize::new(0);
    let failures: Vec<String> = std::thread::scope(|scope| {
        let worker = || {
            let mut failures = Vec::new();
            while let Some((site, behaviour)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(failure) = run(site, *behaviour, test) {
                    failures.push(format!("{}, {behaviour:?}: {failure}", site.message));
                }
            }
            failures
        };
        let threads: Vec<_> = (0..WIDTH).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{} of {} failed:\n{}", failures.len(), runs.len(), failures.join("\n"));
}

fn run(site: &Site, behaviour: Behaviour, test: &str) -> Result<(), String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(CASE, site.message)
        .env("RDMA_TEST_UNWINDING_FILE", site.file)
        .env(BEHAVIOUR, behaviour.name())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let said = std::thread::spawn(move || {
        let mut said = String::new();
        let _ = stderr.read_to_string(&mut said);
        said
    });
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if begun.elapsed() > HANGS_AFTER => break None,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    if status.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let said = said.join().unwrap();
    println!("{:>9.3?} {}, {behaviour:?}", begun.elapsed(), site.message);
    let last: Vec<_> = said.lines().filter(|line| !line.contains(subscriber::PLANTED)).collect();
    let last = last[last.len().saturating_sub(12)..].join("\n    ");
    match status {
        None => Err(format!("did not return within {HANGS_AFTER:?}\n    {last}")),
        Some(status) if !status.success() => Err(format!("{status}\n    {last}")),
        Some(_) => Ok(()),
    }
}

/// Runs the case that the environment names.
#[test]
#[ignore = "it is one case: the other tests start it"]
fn a_case() {
    let variable = |name| std::env::var(name).expect("another test starts this one");
    let (file, message) = (variable("RDMA_TEST_UNWINDING_FILE"), variable(CASE));
    let site =
        SITES.iter().find(|site| site.file == file && site.message == message).expect("a listed place");
    let place = sources::sites().into_iter().find(|site| site.file == file && site.message == message);
    let place = place.expect("a place of the sources");
    let (Reached::Here(case) | Reached::OnDevice(case)) = site.reached else {
        panic!("{site:?} has no case")
    };
    let behaviour = Behaviour::named(&variable(BEHAVIOUR));
    subscriber::install(behaviour, place);
    ground::lay();
    case();
    let until = end::soon();
    while !subscriber::is_reached() {
        assert!(!until.expired(), "no line was written there, but here: {:?}", subscriber::lines());
        std::thread::sleep(Duration::from_millis(1));
    }
    while behaviour == Behaviour::CallsBack && !ground::was_called() {
        assert!(!until.expired(), "the subscriber did not come to the end of its calls");
        std::thread::sleep(Duration::from_millis(1));
    }
    ground::check();
}
