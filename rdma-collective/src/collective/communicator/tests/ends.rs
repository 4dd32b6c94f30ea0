//! The end of a communicator: whom it wakes, how long it waits, what it logs, and what a forked child must not touch.

use std::future::{Future, IntoFuture};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::task::{Context, Wake, Waker};

use rdma_core::fault::{Planted, plant};

use super::*;
use crate::alone::alone;
use crate::collective::operation::Header;
use crate::engine::EngineError;

fn start(comm: &mut Communicator) -> Pending<crate::collective::Tensor<f32>> {
    let tensor = comm.alloc::<f32>(1000).unwrap();
    comm.start_all_reduce(tensor, ReduceOp::Sum, Deadline::after(60 * SECOND)).unwrap()
}

fn poll<T>(future: &mut PendingFuture<T>, waker: &Waker) -> bool {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(waker)).is_ready()
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn whoever_awaits_an_operation_is_woken_when_the_communicator_ends_before_it() {
    let [mut left, _right] = ranks();
    let mut future = start(&mut left).into_future();
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(Arc::clone(&flag));
    assert!(!poll(&mut future, &waker));
    let error = left.close(Deadline::after(SECOND / 10)).unwrap_err();
    assert!(matches!(error, CollectiveError::Unsent), "{error}");
    assert!(flag.0.load(Ordering::Acquire), "nobody wakes the task");
    assert!(poll(&mut future, &waker));
}

/// Reports, when it is dropped, whether the state is unlocked.
struct Last {
    state: Arc<Mutex<State>>,
    free: mpsc::Sender<bool>,
}

impl Wake for Last {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Last {
    fn drop(&mut self) {
        let _ = self.free.send(self.state.try_lock().is_ok());
    }
}

#[test]
fn a_waker_that_is_replaced_or_forgotten_is_dropped_when_nothing_is_locked() {
    let [mut left, _right] = ranks();
    let state = Arc::clone(&left.shared.state);
    let mut future = start(&mut left).into_future();
    let (free, was_free) = mpsc::channel();
    let look = |future: &mut PendingFuture<_>| {
        let last = Last { state: Arc::clone(&state), free: free.clone() };
        assert!(!poll(future, &Waker::from(Arc::new(last))));
    };
    look(&mut future);
    look(&mut future);
    assert_eq!(was_free.try_recv(), Ok(true), "replaced");
    drop(future);
    assert_eq!(was_free.try_recv(), Ok(true), "forgotten");
}

#[test]
fn an_end_that_is_asked_for_between_operations_is_said_to_be_one() {
    let [left, _right] = ranks();
    let said = || left.shared.lock().announcer.to_string();
    assert!(said().ends_with("Destroy COMPLETE"), "{}", said());
    left.aborter().abort();
    assert!(said().ends_with("Abort COMPLETE"), "{}", said());
}

#[test]
fn nothing_is_due_in_a_communicator_that_was_aborted_while_a_rank_was_late() {
    let [mut left, _right] = ranks();
    left.drive(Instant::now());
    let mut pending = start(&mut left);
    assert!(pending.poll().is_pending());
    left.aborter().abort();
    assert!(pending.poll().is_ready());
    assert_eq!(left.engine().lock().due(), None);
}

#[test]
fn the_thread_of_an_engine_rests_when_its_communicator_was_aborted_and_is_kept() {
    let [mut left, _right] = ranks_driven(local(), Driver::Thread);
    let tensor = left.alloc::<f32>(1000).unwrap();
    let pending = left.start_all_reduce(tensor, ReduceOp::Sum, Deadline::after(SECOND / 5)).unwrap();
    left.aborter().abort();
    pending.wait(soon()).unwrap_err();
    // The operation's next step is over by then.
    thread::sleep(SECOND / 5);
    let look = |_| {
        thread::sleep(SECOND / 100);
        left.engine().lock().now()
    };
    let driven: std::collections::HashSet<Instant> = (0..40).map(look).collect();
    assert!(driven.len() < 15, "it was driven again at each of {} looks", driven.len());
}

/// Runs in a process of its own, because a fault is planted in all devices of a process.
#[test]
fn a_lane_that_does_not_end_holds_nobody_up_for_longer_than_a_second() {
    let name = "a_lane_that_does_not_end_holds_nobody_up_for_longer_than_a_second";
    alone(module_path!(), name, || {
        plant(Some(Planted::MissingFlush));
        let [left, _right] = ranks_on(local());
        let started = Instant::now();
        left.close(Deadline::after(120 * SECOND)).unwrap();
        let took = started.elapsed();
        assert!(took > SECOND / 2, "the device has flushed after {took:?}, and this shows nothing");
        assert!(took < 60 * SECOND, "{took:?}");
    });
}

#[test]
fn closing_tells_of_a_lane_that_is_not_fenced_before_anything_else() {
    for fenced in [true, false] {
        let [mut left, _right] = ranks();
        left.aborter().abort();
        left.all_reduce(&mut [1.0_f32], ReduceOp::Sum, soon()).unwrap_err();
        if !fenced {
            left.engine().lock().disown_queue_pairs();
        }
        let error = left.close(soon()).unwrap_err();
        match error {
            CollectiveError::Ended { first } if fenced => {
                assert!(matches!(*first, CollectiveError::Aborted { .. }), "{first}");
            }
            CollectiveError::Engine(EngineError::Fence { .. }) if !fenced => {}
            other => panic!("{other}, and fenced: {fenced}"),
        }
    }
}

#[test]
fn a_rank_that_may_not_write_its_messages_says_so_though_its_peer_has_sent_one() {
    let theirs =
        Header { rank: 0, sequence: 0, count: 1, collective: 1, data_type: 1, reduction: 1, root: 0 };
    let [_left, mut right] = ranks();
    let Shared { engine, state, gate, .. } = &*right.shared;
    let (engine, state, gate) = (engine.clone(), Arc::clone(state), Arc::clone(gate));
    let host = Some(Arc::new(HostGroup::refused(&theirs)));
    state.lock().unwrap().host.clone_from(&host);
    right.shared = Arc::new(Shared { engine, state, gate, host });
    let mut data = [1.0_f32];
    let error = right.all_reduce(&mut data, ReduceOp::Sum, soon()).unwrap_err();
    let CollectiveError::PeerFailed { rank: 0, cause: LaneFailure::Device(_), .. } = error else {
        panic!("{error}");
    };
    assert_eq!(data, [1.0]);
}

#[test]
fn what_a_forked_child_drops_of_a_communicator_waits_for_no_lock_and_its_calls_are_refused() {
    let [mut left, _right] = ranks();
    let _parents_own = start(&mut left);
    let parents = left.engine().clone();
    let Shared { state, gate, host, .. } = &*left.shared;
    let (state, gate, host) = (Arc::clone(state), Arc::clone(gate), host.clone());
    let shared = Shared { engine: parents.forked(), state, gate, host };
    left.shared = Arc::new(shared);
    let pending = || Pending::new(Arc::clone(&left.shared), 0, Instant::now(), drop::<Box<Job>>);
    let (mut polled, awaited, dropped_pending, aborter) = (pending(), pending(), pending(), left.aborter());
    let (dropped, is_dropped) = mpsc::channel();
    let state = Arc::clone(&left.shared.state);
    // A thread that the child does not have holds these locks.
    let held = (parents.lock(), state.lock().unwrap());
    let child = thread::spawn(move || {
        let mut told = vec![left.all_reduce(&mut [1.0_f32], ReduceOp::Sum, soon()).unwrap_err().to_string()];
        told.push(left.start_barrier(soon()).unwrap_err().to_string());
        told.push(left.failure(soon()).unwrap().to_string());
        told.extend(awaited.wait(soon()).err().map(|error| error.to_string()));
        if let Poll::Ready(Err(error)) = polled.poll() {
            told.push(error.to_string());
        }
        aborter.abort();
        drop((polled, dropped_pending, left));
        dropped.send(told).unwrap();
    });
    let in_time = is_dropped.recv_timeout(20 * SECOND);
    drop(held);
    child.join().unwrap();
    let told = in_time.expect("it waits for a thread that it is without");
    assert!(told.len() == 5 && told.iter().all(|text| text.contains("was forked from")), "{told:?}");
}
