//! Timers must be served whatever polling threads leave to the driver, and whenever they stop polling.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rdma_core::fault::{Fault, Messages, Rule};
use rdma_core::{Segment, Wire, Work};

use super::lab::{pair, patient, soon};
use super::write;

/// Rounds of the test. If the driver took a wake-up and slept on, this many would miss a timer in three runs of four.
const ROUNDS: u32 = 2000;

/// A thread with a connection polls in bursts, so that the driver leaves its sockets to it and takes them back again
/// and again. Meanwhile another thread sleeps until a completion that only a timer brings.
#[test]
fn a_timer_set_beside_threads_that_poll_in_bursts_is_served() {
    let (mut polls, peer) = pair(Wire::Tcp, &patient());
    write(&mut polls, &peer, 1, 1);
    let (mut left, right) = pair(Wire::Local, &patient());
    right.faults.add(Rule::new(Fault::Delay(Duration::from_micros(300))).on(Messages::Requests));
    let region = right.region(8);
    let nothing = region.remote().slice(0..0).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for pause in (0..1500).step_by(100).cycle() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                (0..100).for_each(|_| assert!(polls.worker.poll().unwrap().is_none()));
                thread::sleep(Duration::from_micros(pause));
            }
        });
        let mut rounds = 0..ROUNDS;
        let failed = rounds.find_map(|round| {
            left.worker.post(&left.qp, Work::write(Segment::Empty, nothing)).unwrap();
            let failed = match left.worker.wait(soon()) {
                Ok(done) => done.result.err().map(|error| error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            failed.map(|error| format!("after {round}: {error}"))
        });
        stop.store(true, Ordering::Relaxed);
        assert_eq!(failed, None);
    });
}
