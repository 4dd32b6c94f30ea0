//! Threads that share an engine: one that is busy does not keep another from its deadline.

mod common;
mod world;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{WIRES, long};
use rdma_collective::collective::CollectiveError;
use rdma_collective::collective::CommunicatorOptions;
use rdma_collective::collective::ReduceOp;
use rdma_core::Deadline;
use world::each_rank;

#[test]
fn a_busy_thread_keeps_no_other_from_its_deadline() {
    for wire in WIRES {
        let late = each_rank(2, wire, |mut rank| {
            let mut busy = rank.communicator(CommunicatorOptions::default());
            let other = CommunicatorOptions { name: "other".to_owned(), ..CommunicatorOptions::default() };
            let mut other = rank.communicator(other);
            let done = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut data = vec![0.0_f32; 1 << 20];
                    let mut stop = [0.0_f32];
                    // As long as neither rank has what it waits for.
                    while stop[0] < 2.0 {
                        busy.all_reduce(&mut data, ReduceOp::Sum, long()).unwrap();
                        stop[0] = f32::from(u8::from(done.load(Ordering::Relaxed)));
                        busy.all_reduce(&mut stop, ReduceOp::Sum, long()).unwrap();
                    }
                });
                let mut late = Duration::ZERO;
                if other.rank() == 0 {
                    // The other rank never comes to it.
                    let soon = Deadline::after(Duration::from_millis(500));
                    let error = other.all_reduce(&mut [1.0_f32; 10], ReduceOp::Sum, soon).unwrap_err();
                    late = Instant::now().saturating_duration_since(soon.instant());
                    assert!(matches!(error, CollectiveError::DeadlineExceeded { rank: 1, .. }), "{error}");
                }
                done.store(true, Ordering::Relaxed);
                late
            })
        });
        assert!(late[0] < Duration::from_secs(20), "{late:?}");
    }
}
