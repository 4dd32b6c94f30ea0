//! What a request costs; for whoever changes the protocol.

use std::hint::black_box;
use std::time::Instant;

use super::{BASE, Rig, execute, terms};
use crate::backend::soft::engine::message::RequestOp;
use crate::backend::soft::fault::Injected;

const TIMES: u32 = 2_000_000;

fn measure(name: &str, mut once: impl FnMut()) {
    for _ in 0..TIMES / 10 {
        once();
    }
    let begin = Instant::now();
    for _ in 0..TIMES {
        once();
    }
    println!("{name}: {:.1} ns", begin.elapsed().as_nanos() as f64 / f64::from(TIMES));
}

#[test]
#[ignore = "measures: run it alone, optimised, with --nocapture"]
fn requests_of_eight_bytes() {
    let mut rig = Rig::new(1, terms(4, None));
    rig.expose(1, 1);
    let mut local = [0; 8];
    let mut run = |rig: &mut Rig, op| {
        let request = rig.next(op, 1, BASE + 64, 8);
        black_box(execute(&mut rig.port, black_box(&request), &mut local, Injected::Deliver));
    };
    measure("write", || run(&mut rig, RequestOp::Write));
    measure("read", || run(&mut rig, RequestOp::Read));
    measure("receive posted, sent to, taken", || {
        rig.post(1, BASE, 8, 1);
        run(&mut rig, RequestOp::Send);
        black_box(rig.mailbox.take().unwrap());
    });
}
