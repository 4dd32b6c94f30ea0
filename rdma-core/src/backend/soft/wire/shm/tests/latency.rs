//! The cost of a request, printed for anybody who changes the protocol.

use std::hint::black_box;
use std::time::Instant;

use super::{BASE, Rig, execute, terms};
use crate::backend::soft::engine::message::RequestOp;
use crate::backend::soft::fault::Injected;

/// Requests between two readings of the clock.
const BATCH: u32 = 2000;
const BATCHES: usize = 1000;

/// Prints the median and the least of the batches, because other programs disturb some.
fn measure(name: &str, mut once: impl FnMut()) {
    let mut batches: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..BATCH {
                once();
            }
            begin.elapsed().as_nanos() as f64 / f64::from(BATCH)
        })
        .collect();
    batches.sort_by(f64::total_cmp);
    println!("{name}: median {:.1} ns, least {:.1} ns", batches[BATCHES / 2], batches[0]);
}

#[test]
#[ignore = "measures: run it alone, optimised, with --nocapture"]
fn requests_of_eight_bytes() {
    let mut rig = Rig::new(1, terms(4));
    rig.expose(1, 1);
    let mut local = [0; 8];
    let mut run = |rig: &mut Rig, op| {
        let request = rig.next(op, 1, BASE + 64, 8);
        black_box(execute(&mut rig.responder, black_box(&request), &mut local, Injected::Deliver));
    };
    measure("write", || run(&mut rig, RequestOp::Write));
    measure("read", || run(&mut rig, RequestOp::Read));
    measure("receive posted, sent to, taken", || {
        rig.post(1, BASE, 8, 1);
        run(&mut rig, RequestOp::Send);
        black_box(rig.mailbox.take().unwrap());
    });
}
