//! Threads of the parent, which use the engines while children are made: all-reduces, transfers, drives.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use rdma_collective::collective::{Communicator, ReduceOp};
use rdma_collective::engine::Engine;
use rdma_collective::kv::{Decode, Prefill};

use crate::fixture::{Busy, soon};
use crate::pair;

/// All-reduces and transfers that must be whole meanwhile.
const MIN: u32 = 1000;

/// Runs `calls` while threads use what `busy` has, and checks what they compute and move.
///
/// The calls begin once every thread has begun to work, because a child's threads may wait for ever if a thread of the
/// parent was starting as the child was made.
pub fn meanwhile(busy: Busy, calls: impl FnOnce()) {
    let Busy { engines, comms, prefill, decode } = busy;
    let (ended, sums, transfers) = (&AtomicBool::new(false), &AtomicU32::new(0), &AtomicU32::new(0));
    let at_work = &Barrier::new(comms.len() + engines.len() + 2);
    std::thread::scope(|scope| {
        for comm in comms {
            scope.spawn(move || {
                at_work.wait();
                reduce(comm, sums, || ended.load(Ordering::Relaxed));
            });
        }
        let goes_on = || !ended.load(Ordering::Relaxed) || transfers.load(Ordering::Relaxed) < MIN;
        let (prefill, decode) = (&prefill, &decode);
        scope.spawn(move || {
            at_work.wait();
            transfer((prefill, decode), transfers, goes_on);
        });
        for engine in &engines {
            scope.spawn(move || {
                at_work.wait();
                drive(engine, || !ended.load(Ordering::Relaxed));
            });
        }
        let _ends = Ends(ended);
        at_work.wait();
        calls();
    });
    let (sums, transfers) = (sums.load(Ordering::Relaxed) / 2, transfers.load(Ordering::Relaxed));
    assert!(sums >= MIN && transfers >= MIN, "{sums} {transfers}");
    println!("{sums} all-reduces and {transfers} transfers of the parent were whole");
}

/// Ends the threads, also when a call panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reduces until both ranks have been told that the children have ended.
fn reduce(mut comm: Communicator, sums: &AtomicU32, ended: impl Fn() -> bool) {
    for round in 0.. {
        let may_end = ended() && sums.load(Ordering::Relaxed) >= 2 * MIN;
        let mut data = [u64::from(may_end), round, u64::from(comm.rank()), 7];
        comm.all_reduce(&mut data, ReduceOp::Sum, soon()).unwrap();
        assert_eq!(data[1..], [2 * round, 1, 14]);
        sums.fetch_add(1, Ordering::Relaxed);
        if data[0] == 2 {
            return comm.close(soon()).unwrap();
        }
    }
}

/// Moves blocks, and compares every byte at the end.
fn transfer((prefill, decode): (&Prefill, &Decode), transfers: &AtomicU32, goes_on: impl Fn() -> bool) {
    let pairs = [(0, 3), (5, 1)];
    for request in 0.. {
        one_transfer(prefill, decode, request, &pairs);
        transfers.fetch_add(1, Ordering::Relaxed);
        if !goes_on() {
            return pair::assert_moved(decode.pool(), &pairs);
        }
    }
}

/// Moves blocks as one request, and starts no thread, as [`meanwhile`] needs: other threads drive both ends.
fn one_transfer(prefill: &Prefill, decode: &Decode, request: u64, pairs: &[(u32, u32)]) {
    let (sources, destinations): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
    let granted = decode.grant(request, &destinations, soon()).unwrap();
    let pushed = prefill.push(request, &sources, soon()).unwrap();
    assert!(granted.wait().unwrap().verdicts.all_valid());
    assert_eq!(pushed.wait().unwrap().corrupt, 0);
}

/// Takes the engine's lock again and again.
fn drive(engine: &Engine, goes_on: impl Fn() -> bool) {
    while goes_on() {
        engine.drive(Instant::now(), 16).unwrap();
        let _ = engine.next_deadline();
        std::thread::yield_now();
    }
}
