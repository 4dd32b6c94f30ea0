//! Who looks for the messages of small operations, and what else goes on meanwhile.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::comm::operation::Header;

#[test]
fn only_the_caller_of_a_borrowed_operation_looks_again_for_it() {
    let [mut left, _right] = ranks();
    let engine = left.engine().clone();
    let (looks, start) = (AtomicU32::new(0), Instant::now());
    thread::scope(|scope| {
        let looks = &looks;
        scope.spawn(move || {
            let error = left.run(
                soon(),
                Among::All,
                |_, _, _| (),
                |(), parts, _| {
                    let looked = looks.fetch_add(1, Ordering::Relaxed);
                    *parts.look_at = Some(if looked < 50 { Instant::now() + SECOND / 1000 } else { start });
                    match looked {
                        0..400 => Poll::Pending,
                        _ => Poll::Ready(Err(CollectiveError::Unsent)),
                    }
                },
                |(), _, _| CollectiveError::Queued,
            );
            assert!(matches!(error, Err(CollectiveError::Unsent)), "it slept for something else");
        });
        // Who else waits on the engine would not sleep at all by a time that has passed.
        while looks.load(Ordering::Relaxed) < 400 && start.elapsed() < 20 * SECOND {
            assert_ne!(engine.next_deadline(), Some(start));
        }
    });
}

#[test]
fn operations_that_are_done_at_once_drive_an_engine_that_nobody_else_drives() {
    let [mut left, mut right] = ranks();
    for (sequence, late) in [(0, false), (1, true)] {
        let theirs =
            Header { rank: 1, sequence, count: 1, collective: 1, data_type: 1, reduction: 1, root: 0 };
        let at_once = right.at_once().unwrap();
        at_once.host.put(0, &theirs, &2.0_f32.to_ne_bytes()).unwrap();
        at_once.done();
        left.driven = if late { Instant::now() - SECOND } else { Instant::now() + SECOND };
        let before = left.engine().lock().driven();
        let mut data = [1.0_f32];
        left.all_reduce(&mut data, ReduceOp::Sum, soon()).unwrap();
        assert_eq!((data, left.engine().lock().driven() > before), ([3.0], late));
    }
}
