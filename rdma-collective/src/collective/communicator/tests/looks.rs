//! Polling for the messages of small operations: which thread does it, and what else makes progress meanwhile.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::collective::communicator::progress::Progress;
use crate::collective::operation::Header;

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
                Participants::All,
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
        // Other threads that wait on the engine would never sleep if this time had passed.
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
        let fast_path = right.fast_path(soon(), |_| Duration::ZERO).unwrap();
        fast_path.host.put(0, &theirs, &2.0_f32.to_ne_bytes()).unwrap();
        fast_path.done(Instant::now);
        left.driven = Some(if late { Instant::now() - SECOND } else { Instant::now() + SECOND });
        let before = left.engine().lock().now();
        let mut data = [1.0_f32];
        left.all_reduce(&mut data, ReduceOp::Sum, soon()).unwrap();
        assert_eq!((data, left.engine().lock().now() > before), ([3.0], late));
    }
}

#[test]
fn who_finds_all_pieces_there_looks_at_its_deadline_all_the_same() {
    let mut data = vec![1.0_f32; 16 << 20];
    let count = data.len() as u64;
    let theirs = Header { rank: 1, sequence: 0, count, collective: 1, data_type: 1, reduction: 1, root: 0 };
    // On a busy machine so short a time may pass before the operation begins: then other ranks try again.
    for _ in 0..100 {
        let [mut left, mut right] = ranks();
        let fast_path = right.fast_path(soon(), |_| Duration::ZERO).unwrap();
        fast_path.host.put(0, &theirs, &[]).unwrap();
        fast_path.host.publish_mark(1 << 40);
        match left.all_reduce(&mut data, ReduceOp::Sum, Deadline::after(SECOND / 1000)).unwrap_err() {
            CollectiveError::DeadlineExceeded { .. } => return,
            CollectiveError::Queued => {}
            error => panic!("{error}"),
        }
    }
    panic!("no operation began in its time");
}

#[test]
fn what_owns_its_memory_is_done_as_it_begins_where_messages_are_there() {
    let [mut left, mut right] = ranks();
    let engine = left.engine().clone();
    for sequence in 0..3 {
        let theirs =
            Header { rank: 1, sequence, count: 1, collective: 1, data_type: 1, reduction: 1, root: 0 };
        let fast_path = right.fast_path(soon(), |_| Duration::ZERO).unwrap();
        fast_path.host.put(0, &theirs, &2.0_f32.to_ne_bytes()).unwrap();
        fast_path.done(Instant::now);
        let mut data = left.alloc(1).unwrap();
        data[0] = 1.0_f32;
        // The engine is locked, so nobody can drive it.
        let core = engine.lock();
        let mut pending = left.start_all_reduce(data, ReduceOp::Sum, soon()).unwrap();
        match sequence {
            0 => {
                assert!(matches!(pending.poll(), Poll::Ready(Ok(sum)) if sum[0] == 3.0));
                drop(core);
                assert!(pending.poll().is_pending(), "it is given back once");
            }
            1 => assert_eq!(pending.wait(Deadline::after(Duration::ZERO)).unwrap()[0], 3.0),
            _ => drop(pending),
        }
    }
}

#[test]
fn long_operations_are_left_to_a_caller_that_waits_at_once_and_to_no_other() {
    const AT_ONCE: usize = 200;
    const LATE: usize = 20;
    let [mut left, mut right] = ranks_of_two_hosts(Driver::Thread);
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut data = vec![1.0_f32; 100_000];
            for _ in 0..AT_ONCE + LATE {
                right.all_reduce(&mut data, ReduceOp::Max, soon()).unwrap();
            }
        });
        let mut tensor = left.alloc::<f32>(100_000).unwrap();
        let mut left_to_caller = [0, 0];
        for round in 0..AT_ONCE + LATE {
            let is_late = round >= AT_ONCE;
            let pending = left.start_all_reduce(tensor, ReduceOp::Max, soon()).unwrap();
            let owned = left.shared.gate.is(Progress::CallerOwned);
            left_to_caller[usize::from(is_late)] += u32::from(owned);
            if is_late {
                thread::sleep(SECOND / 1000);
            }
            tensor = pending.wait(soon()).unwrap();
        }
        let [at_once, late] = left_to_caller;
        // A busy machine takes the core away between the two calls now and then. The first late wait comes unexpected.
        assert!(at_once > 0 && late <= 1, "{at_once} of {AT_ONCE}, {late} of {LATE}");
    });
}
