//! Nodes that are closed: nothing is left of them when that is said, peers notice, and other handles say so.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use rdma_collective::engine::Driver;
use rdma_collective::kv::{KvError, KvNode, NodeError, NodeOptions, Pool, PoolUse};
use rdma_core::{Deadline, Wire};

use crate::common::{WIRES, assert_books, block_on, books, long};
use crate::job::{Member, Role, member, member_on, options};
use crate::pair::{CANARY, SHAPE, TOKEN, assert_freed, engine, engine_driven, pool};

/// A peer that is killed would be noticed later, because lanes beat each 20 ms here, and are lost after a second.
const AT_ONCE: Duration = Duration::from_millis(900);

/// Alone, because it reads the books of its process.
#[test]
#[ignore = "alone: processes::what_nodes_have_taken_goes_with_them starts it"]
fn nothing_is_left_of_a_node_the_moment_it_is_closed() {
    for wire in WIRES {
        let engines = [engine(wire, None), engine(wire, None)];
        let pools = [PoolUse::SourceToPull, PoolUse::Destination];
        let pools = [0, 1].map(|end| pool(&engines[end], SHAPE, pools[end], |_, _, _| CANARY));
        let mut before = books();
        for round in 0..6 {
            let nodes = [("p", 0), ("d", 1)].map(|(name, end)| {
                KvNode::new(&engines[end], &[&pools[end]], &TOKEN, &options(name)).unwrap()
            });
            let [p, d] = &nodes;
            d.connect(&p.export(), long()).wait().unwrap();
            let grant = d.grant("p", 1, &[3], long()).wait().unwrap();
            p.push("d", 1, &[0], long()).wait().unwrap().wait().unwrap();
            grant.wait().unwrap();
            // A transfer that is under way, and one that waits for its link.
            let unmet = d.grant("p", 2, &[4], long()).wait().unwrap();
            drop((unmet, p.offer("d", 3, &[1], long())));
            for node in nodes {
                block_on(node.closed(long())).unwrap();
            }
            let after = books();
            // The first rounds fill what is kept for ever.
            if round > 1 {
                // The kernel counts a thread that was joined for an instant longer, and the fabric's thread closes its
                // sockets.
                assert_books(&before, "a little later");
                let at_once =
                    if wire == Wire::Tcp { &["mappings"][..] } else { &["mappings", "descriptors"] };
                for count in at_once {
                    assert_eq!(after[count], before[count], "{wire:?}, round {round}: {count}");
                }
            } else {
                thread::sleep(Duration::from_millis(500));
                before = books();
            }
        }
        for pool in pools {
            pool.close(Deadline::after(Duration::ZERO)).unwrap();
        }
    }
}

#[test]
fn transfers_under_way_end_with_an_error_and_peers_notice_at_once() {
    for wire in WIRES {
        let (a, b) = (member(wire, "a", Role::Prefill), member(wire, "b", Role::Decode));
        a.meet(&b);
        a.push_to(&b, 1, &[(0, 3)]);
        let grant = b.node.grant("a", 2, &[4], long()).wait().unwrap();
        let push = a.node.push_layers("b", 2, &[1], long()).wait().unwrap();
        let waiting = a.node.push("b", 3, &[2], long()).wait().unwrap();
        let left = b.node.left("a");
        let began = Instant::now();
        let closing = a.node.clone().closed(long());
        block_on(left);
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
        block_on(closing).unwrap();
        for push in [push, waiting] {
            let error = push.wait().unwrap_err();
            assert!(matches!(error, KvError::LinkEnded { .. } | KvError::PeerFailed { .. }), "{error}");
        }
        let error = grant.wait().unwrap_err();
        assert!(matches!(*error.cause, KvError::LinkEnded { .. } | KvError::PeerFailed { .. }), "{error}");
        assert_freed(b.destination.as_ref().unwrap(), &[4]);
    }
}

#[test]
fn other_handles_of_a_closed_node_say_that_it_is_closed() {
    let (a, b) = (member(Wire::Local, "a", Role::Prefill), member(Wire::Local, "b", Role::Decode));
    a.meet(&b);
    // Nobody listens there, so the tasks wait.
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hidden = NodeOptions { addresses: vec![nowhere.local_addr().unwrap()], ..options("c") };
    let c = crate::job::member_with(Wire::Local, &hidden, Role::Decode);
    let connecting = a.node.connect(&c.node.export(), long());
    let begin = a.node.push("c", 1, &[0], long());
    thread::scope(|scope| {
        let waits = scope.spawn(|| begin.wait().unwrap_err());
        thread::sleep(Duration::from_millis(20));
        let [first, second] = [a.node.clone(), a.node.clone()].map(|node| node.closed(long()));
        first.wait().unwrap();
        second.wait().unwrap();
        let error = waits.join().unwrap();
        assert!(matches!(error, NodeError::Closed), "{error}");
    });
    let error = connecting.wait().unwrap_err();
    assert!(matches!(error, NodeError::Closed), "{error}");
    for error in [
        a.node.connect(&b.node.export(), long()).wait().unwrap_err(),
        a.node.push("b", 2, &[0], long()).wait().unwrap_err(),
        a.node.offer("nobody", 2, &[0], long()).wait().unwrap_err(),
    ] {
        assert!(matches!(error, NodeError::Closed), "{error}");
    }
    assert!(a.node.peers().is_empty() && !a.node.forget("b"));
    block_on(a.node.left("b"));
    // Once more, though it has ended.
    block_on(a.node.clone().closed(Deadline::after(Duration::ZERO))).unwrap();
    // The name and the peers are free for the next node.
    let Member { node, .. } = a;
    drop(node);
    let next = member(Wire::Local, "a", Role::Prefill);
    next.meet(&b);
    next.push_to(&b, 3, &[(0, 3)]);
}

#[test]
fn closing_that_takes_too_long_says_so_and_goes_on() {
    let (a, b) = (member(Wire::Local, "a", Role::Prefill), member(Wire::Local, "b", Role::Decode));
    a.meet(&b);
    a.push_to(&b, 1, &[(0, 3)]);
    let late = a.node.clone().closed(Deadline::after(Duration::ZERO)).wait();
    if let Err(error) = late {
        assert!(matches!(error, NodeError::StillClosing { .. }), "{error}");
    }
    a.node.clone().closed(long()).wait().unwrap();
}

/// A waker that runs this.
struct Runs<F>(F);

impl<F: Fn() + Send + Sync> Wake for Runs<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn poll<F: Future + Unpin>(future: &mut F, waker: impl Fn() + Send + Sync + 'static) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(&Waker::from(Arc::new(Runs(waker)))))
}

#[test]
fn a_node_whose_tasks_have_wakers_that_panic_ends_nevertheless() {
    let (a, b) = (member(Wire::Local, "a", Role::Prefill), member(Wire::Local, "b", Role::Decode));
    // Without the message of a panic, which is no failure here.
    let panics = || std::panic::resume_unwind(Box::new("a waker"));
    // A worker wakes the first and the third, the node's own thread the others.
    let mut connecting = a.node.connect(&b.node.export(), long());
    // The two may have met by now.
    _ = poll(&mut connecting, panics);
    let patience = long();
    while a.node.peers().is_empty() {
        assert!(!patience.expired());
        thread::yield_now();
    }
    let mut left = a.node.left("b");
    assert!(poll(&mut left, panics).is_pending());
    let mut begin = a.node.push("b", 1, &[0], long());
    assert!(poll(&mut begin, panics).is_pending());
    let mut late = a.node.push("b", 2, &[0], Deadline::after(Duration::from_millis(100)));
    _ = poll(&mut late, panics);
    drop(begin.wait().unwrap());
    drop(b);
    block_on(a.node.left("b"));
    let mut first = a.node.clone().closed(long());
    _ = poll(&mut first, panics);
    a.node.clone().closed(long()).wait().unwrap();
    first.wait().unwrap();
}

#[test]
fn who_waits_for_the_end_of_a_node_does_not_wait_for_the_waker_of_another() {
    let a = member(Wire::Local, "a", Role::Prefill);
    let ((entered, enters), (leave, leaves)) = (channel(), channel::<()>());
    let leaves = Mutex::new(leaves);
    let mut first = a.node.clone().closed(long());
    let mut second = a.node.clone().closed(long());
    let blocks = move || {
        entered.send(()).unwrap();
        _ = leaves.lock().unwrap().recv_timeout(long().remaining());
    };
    if poll(&mut first, blocks).is_pending() {
        enters.recv().unwrap();
        assert!(matches!(poll(&mut second, || {}), Poll::Ready(Ok(()))));
        leave.send(()).expect("the waker was left before its time");
    }
    first.wait().unwrap();
}

#[test]
fn a_pool_is_closed_right_after_its_node() {
    let engine = engine(Wire::Local, None);
    let source = pool(&engine, SHAPE, PoolUse::Source, |_, _, _| CANARY);
    let node = KvNode::new(&engine, &[&source], &TOKEN, &options("p")).unwrap();
    let other = node.clone();
    let source: Pool = source.close(Deadline::after(Duration::ZERO)).unwrap_err().object;
    node.closed(long()).wait().unwrap();
    source.close(long()).unwrap();
    drop(other);
}

/// A worker of node b makes a link, and so drives the engine, which wakes the task of a transfer.
#[test]
fn the_waker_of_a_transfer_that_panics_stops_no_thread_of_a_node() {
    let own = engine_driven(Wire::Local, None, Driver::Caller);
    let (a, b) = (member(Wire::Local, "a", Role::Both), member_on(&own, &options("b"), Role::Both));
    b.meet(&a);
    let mut grant = b.node.grant("a", 1, &[3], long()).wait().unwrap();
    let push = a.node.push("b", 1, &[0], long()).wait().unwrap();
    let panicked = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&panicked);
    let panics = move || {
        noted.store(true, Ordering::SeqCst);
        std::panic::resume_unwind(Box::new("a waker"))
    };
    assert!(poll(&mut grant, panics).is_pending());
    drop(push);
    drop(b.node.push("a", 2, &[0], long()).wait().unwrap());
    while !panicked.load(Ordering::SeqCst) {
        own.drive(Instant::now(), 64).unwrap();
    }
    drop(grant);
    b.node.clone().closed(long()).wait().unwrap();
}
