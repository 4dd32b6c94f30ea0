//! Memory that something else may write by raw pointers: its pages are not replaced under a stopped writer, so it
//! goes into quarantine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_core::error::Quarantine;
use rdma_core::{Quarantined, Region, quarantined};
use rustix::process::Signal;

use super::deaths::{signal, writing_to};
use super::end::{End, soon};
use super::in_place::{Aligned, at_an_address};
use super::processes::{BYTES, Peer};

/// Attempts at stopping a process in the middle of an access.
const ROUNDS: u32 = 200;

/// Returns a region of `cache` whose deregistration was refused, the process that is stopped in the middle of writing
/// it, and this end of the connection. Without that end the queue pair would leak, with everything posted to it.
fn stopped() -> (Arc<Aligned>, Region, Peer, End) {
    for round in (1..ROUNDS).map(|round| round % 16) {
        let (cache, memory) = at_an_address(BYTES, 0);
        let (end, region, peer) = writing_to(memory, round);
        signal(&peer, Signal::STOP);
        let begun = Instant::now();
        if let Err(refused) = region.deregister() {
            assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
            let cause = refused.error.source.get_ref().expect("a cause");
            assert!(cause.is::<Quarantine>(), "{cause}");
            return (cache, refused.object, peer, end);
        }
    }
    panic!("no write was met");
}

fn assert_released(cache: &Arc<Aligned>) {
    let deadline = soon();
    while Arc::strong_count(cache) > 1 {
        assert!(!deadline.expired(), "it is kept");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_dropped_beside_a_stopped_process_is_counted_until_it_goes_on_or_ends() {
    for last in [Signal::CONT, Signal::KILL] {
        let (cache, region, peer, _end) = stopped();
        assert_eq!(quarantined(), Quarantined::default(), "it is the caller's still");
        drop(region);
        let kept = quarantined();
        assert_eq!((kept.memories, kept.bytes, Arc::strong_count(&cache)), (1, BYTES as u64, 2));
        signal(&peer, last);
        assert_released(&cache);
        assert_eq!(quarantined(), Quarantined::default());
    }
}

#[test]
fn what_was_refused_is_given_back_once_the_process_goes_on_or_ends() {
    for last in [Signal::CONT, Signal::KILL] {
        let (cache, region, peer, _end) = stopped();
        signal(&peer, last);
        drop(region.deregister().unwrap());
        assert_released(&cache);
    }
}
