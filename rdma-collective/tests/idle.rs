//! Engines that have nothing to do use next to nothing of a processor, though peers hear that they live.
//!
//! The processor time of idle engines: a single test, because it reads the time of its whole process.

mod common;
mod pair;
mod world;

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use common::long;
use pair::Setup;
use rdma_collective::collective::CommunicatorOptions;
use rdma_collective::collective::ReduceOp;
use rdma_core::Wire;
use world::each_communicator;

/// The largest share of a core that two idle engines may use: they use half a thousandth, and a machine may be slow or
/// busy.
const SHARE_MAX: f64 = 0.002;
/// The largest share where each engine beats every 20 ms, and not every 500 ms.
const BEATING_SHARE_MAX: f64 = 0.05;
const IDLE: Duration = Duration::from_secs(2);

/// The time that this process has run.
fn ran() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// How much of a core is used while nothing happens but what the engines do by themselves: the least of up to three
/// looks, because a machine that is busy with something else only adds to it.
fn share_of_a_core(most: f64) -> f64 {
    let look = || {
        // Work that has just been done may still have something to finish.
        thread::sleep(Duration::from_millis(300));
        let (before, began) = (ran(), Instant::now());
        thread::sleep(IDLE);
        (ran() - before).as_secs_f64() / began.elapsed().as_secs_f64()
    };
    let mut least = look();
    for _ in 0..2 {
        if least < most {
            break;
        }
        least = least.min(look());
    }
    least
}

#[test]
fn engines_that_have_nothing_to_do_leave_the_processor_alone() {
    for wire in [Wire::Tcp, Wire::Mapped] {
        let together = Arc::new(Barrier::new(2));
        each_communicator(2, wire, CommunicatorOptions::default(), move |mut comm| {
            comm.all_reduce(&mut [1.0_f32; 1000], ReduceOp::Sum, long()).unwrap();
            let share = if together.wait().is_leader() { share_of_a_core(SHARE_MAX) } else { 0.0 };
            together.wait();
            assert!(share < SHARE_MAX, "a communicator, {wire:?}: {share}");
        });
        let pair = Setup { wire, ..Setup::default() }.connect();
        pair.transfer(1, &[(0, 1), (1, 0)]);
        let share = share_of_a_core(BEATING_SHARE_MAX);
        assert!(share < BEATING_SHARE_MAX, "a KV link whose engines beat every 20 ms, {wire:?}: {share}");
    }
}
