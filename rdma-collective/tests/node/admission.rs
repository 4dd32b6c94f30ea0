//! Requests wait for room: by their deadlines, within the bounds of a node, and without delay for other peers.

use std::future::Future;
use std::net::TcpListener;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rdma_collective::kv::layout::Shape;
use rdma_collective::kv::{
    Begin, Full, KvNode, Load, NodeError, NodeOptions, PoolUse, Push, Receiving, Sending,
};
use rdma_core::{Deadline, Wire};

use crate::common::long;
use crate::job::{Member, Role, listen, member, member_with, options};
use crate::pair::{CANARY, SHAPE, TOKEN, assert_moved, engine, pool};

/// A task, and whether it is to be looked at.
struct Flag(AtomicBool, Thread);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
        self.1.unpark();
    }
}

/// Runs many tasks on this thread; each is looked at when it was woken, and not otherwise.
fn run_all(tasks: impl Iterator<Item = Pin<Box<dyn Future<Output = ()>>>>) {
    let flag = || Arc::new(Flag(AtomicBool::new(true), thread::current()));
    let mut tasks: Vec<_> = tasks.map(|task| (flag(), task)).collect();
    let patience = long();
    while !tasks.is_empty() {
        tasks.retain_mut(|(flag, task)| {
            let waker = Waker::from(Arc::clone(flag));
            !flag.0.swap(false, Ordering::AcqRel)
                || task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
        });
        assert!(!patience.expired(), "{} tasks are left", tasks.len());
        thread::park_timeout(Duration::from_secs(1));
    }
}

/// A node that sends, within bounds, and one that receives; their link is up.
fn linked(bounds: NodeOptions) -> (Member, Member) {
    let (from, to) =
        (member_with(Wire::Local, &bounds, Role::Prefill), member(Wire::Local, "d", Role::Decode));
    from.meet(&to);
    from.push_to(&to, 1, &[(0, 3)]);
    (from, to)
}

fn bounds() -> NodeOptions {
    options("p")
}

/// Bounds of one transfer of each peer at a time.
fn one() -> NodeOptions {
    NodeOptions { peer_transfers_max: 1, ..bounds() }
}

fn seconds(seconds: u64) -> Deadline {
    Deadline::after(Duration::from_secs(seconds))
}

/// Begins a push, which the peer does not grant.
fn begin(from: &Member, request: u64, deadline: Deadline) -> Push {
    from.node.push("d", request, &[0], deadline).wait().unwrap()
}

/// A push that waits, after its first look.
fn waits(from: &Member, request: u64, deadline: Deadline) -> Begin<Sending> {
    from.node.push("d", request, &[0], deadline).try_now().expect_err("there is room")
}

/// Gives a push up, so that its room is free.
fn end(push: Push) {
    push.revoke(long()).unwrap();
}

fn until(what: impl Fn() -> bool) {
    let patience = long();
    while !what() {
        assert!(!patience.expired());
        thread::yield_now();
    }
}

#[test]
fn a_thousand_requests_of_one_peer_all_begin_and_move_their_blocks() {
    let from = member(Wire::Local, "p", Role::Prefill);
    let engine = engine(Wire::Local, None);
    let room = pool(&engine, Shape { blocks: 1000, ..SHAPE }, PoolUse::Destination, |_, _, _| CANARY);
    let node = KvNode::new(&engine, &[&room], &TOKEN, &options("d")).unwrap();
    node.connect(&from.node.export(), long()).wait().unwrap();
    // Each request has one deadline at both nodes, so that both have begun the same requests.
    let start = Instant::now() + Duration::from_secs(60);
    let deadline = |at: u32| Deadline::at(start + Duration::from_millis(at.into()));
    thread::scope(|threads| {
        threads.spawn(|| {
            run_all((0..1000).map(|at| {
                let push = from.node.push("d", u64::from(at), &[at % 24], deadline(at));
                Box::pin(async { drop(push.await.unwrap().await.unwrap()) })
                    as Pin<Box<dyn Future<Output = ()>>>
            }));
        });
        run_all((0..1000).map(|at| {
            let grant = node.grant("p", u64::from(at), &[at], deadline(at));
            Box::pin(async { assert!(grant.await.unwrap().await.unwrap().verdicts.all_valid()) })
                as Pin<Box<dyn Future<Output = ()>>>
        }));
    });
    assert_moved(&room, &(0..1000).map(|at| (at % 24, at)).collect::<Vec<_>>());
    assert_eq!((from.node.load(), node.load()), Default::default());
}

#[test]
fn requests_begin_by_their_deadlines() {
    let (from, _to) = linked(one());
    let mut held = begin(&from, 2, long());
    let waiting = [50, 20, 40, 30].map(|left| (left, waits(&from, 100 + left, seconds(left))));
    assert_eq!(from.node.load().waiting, 4);
    assert_eq!(from.node.peer_load("d").unwrap(), from.node.load());
    let mut waiting = Vec::from(waiting);
    for expected in [20, 30, 40, 50] {
        assert!(waiting.iter().all(|(_, begin)| begin.busy() == Some(Full::PeerTransfers)));
        end(held);
        let at = waiting.iter().position(|(left, _)| *left == expected).unwrap();
        let (_, next) = waiting.swap_remove(at);
        // The others look first, and find no room.
        waiting = waiting.into_iter().map(|(left, begin)| (left, begin.try_now().unwrap_err())).collect();
        held = next.wait().unwrap();
    }
}

#[test]
fn of_a_hundred_thousand_requests_those_wait_that_may_and_the_others_fail_at_once() {
    let few = NodeOptions { peer_transfers_max: 8, waiting_max: 1000, ..bounds() };
    let (from, to) = linked(few);
    let (mut begun, mut waiting, mut refused) = (Vec::new(), Vec::new(), 0);
    let deadline = seconds(600);
    for request in 0..100_000 {
        match from.node.push("d", 2 + request, &[0], deadline).try_now() {
            Ok(Ok(push)) => begun.push(push),
            Ok(Err(NodeError::Busy { full: Full::Waiting, .. })) => refused += 1,
            Ok(Err(error)) => panic!("{error}"),
            Err(begin) => waiting.push(begin),
        }
    }
    assert_eq!((begun.len(), waiting.len(), refused), (8, 1000, 98_992));
    let load = from.node.load();
    assert_eq!((load.transfers, load.waiting), (8, 1000));
    // Another peer has room, and its requests need not wait.
    let other = member(Wire::Local, "e", Role::Decode);
    from.meet(&other);
    until(|| match from.node.push("e", 9, &[0], deadline).try_now() {
        Ok(Ok(push)) => push.revoke(long()).is_ok(),
        _ => false,
    });
    begun.into_iter().for_each(end);
    drop(waiting);
    until(|| from.node.load() == Default::default());
    from.push_to(&to, 1, &[(0, 3)]);
}

#[test]
fn requests_of_a_peer_that_wait_leave_others_room_to_wait() {
    let (from, _to) = linked(NodeOptions { waiting_max: 4, peer_waiting_max: 3, ..one() });
    let other = member(Wire::Local, "e", Role::Decode);
    from.meet(&other);
    let _held = begin(&from, 2, long());
    let mut waiting: Vec<_> = (3..6).map(|request| waits(&from, request, seconds(50))).collect();
    let next = |peer, request| from.node.push(peer, request, &[0], seconds(50)).try_now();
    assert!(matches!(next("d", 6), Ok(Err(NodeError::Busy { full: Full::PeerWaiting, .. }))));
    let held = from.node.push("e", 2, &[0], long()).wait().unwrap();
    let other = next("e", 3).unwrap_err();
    assert!(matches!(next("d", 6), Ok(Err(NodeError::Busy { full: Full::Waiting, .. }))));
    end(held);
    end(other.wait().unwrap());
    waiting.pop();
    waiting.push(next("d", 6).unwrap_err());
}

#[test]
fn a_peer_that_does_not_answer_delays_no_other() {
    let (from, _silent) = linked(bounds());
    let quick = member(Wire::Local, "q", Role::Decode);
    from.meet(&quick);
    from.push_to(&quick, 1, &[(0, 3)]);
    let _full: Vec<_> = (0..256).map(|request| begin(&from, 2 + request, long())).collect();
    let _waiting: Vec<_> = (0..500).map(|request| waits(&from, 1000 + request, seconds(50))).collect();
    for request in 0..100 {
        let now = from.node.push("q", 2 + request, &[0], long()).try_now();
        let push = now.unwrap_or_else(|begin| panic!("it waits: {:?}", begin.busy())).unwrap();
        let grant = quick.node.grant("p", 2 + request, &[3], long()).wait().unwrap();
        assert!(grant.wait().unwrap().verdicts.all_valid());
        push.wait().unwrap();
    }
}

#[test]
fn the_bound_of_the_node_is_shared_by_deadlines() {
    let (from, _to) = linked(NodeOptions { transfers_max: 1, ..bounds() });
    let other = member(Wire::Local, "e", Role::Decode);
    from.meet(&other);
    from.push_to(&other, 1, &[(0, 3)]);
    let held = begin(&from, 2, long());
    let last = waits(&from, 3, seconds(50));
    let first = from.node.push("e", 2, &[0], seconds(40)).try_now().unwrap_err();
    assert_eq!([&last, &first].map(Begin::busy), [Some(Full::Transfers); 2]);
    end(held);
    let last = last.try_now().unwrap_err();
    end(first.wait().unwrap());
    end(last.wait().unwrap());
}

#[test]
fn a_begin_that_is_dropped_while_it_waits_passes_its_turn_on() {
    let (from, to) = linked(one());
    for round in 0..200 {
        let (held, last) = (begin(&from, 2, long()), waits(&from, 3, seconds(50)));
        thread::scope(|threads| {
            let freed = threads.spawn(|| {
                thread::sleep(Duration::from_micros(7 * round));
                end(held);
            });
            {
                let mut dropped = pin!(from.node.push("d", 4, &[0], seconds(40)));
                for _ in 0..1 + round % 4 {
                    let looked = dropped.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                    if let Poll::Ready(begun) = looked {
                        end(begun.unwrap());
                        break;
                    }
                    thread::sleep(Duration::from_micros(200));
                }
            }
            freed.join().unwrap();
            end(last.wait().unwrap());
        });
        until(|| from.node.load() == Default::default());
    }
    from.push_to(&to, 1, &[(0, 3)]);
}

#[test]
fn a_task_that_does_not_look_keeps_its_room_until_its_deadline_at_most() {
    let (from, _to) = linked(one());
    let held = begin(&from, 2, long());
    let _sleeps = waits(&from, 3, Deadline::after(Duration::from_millis(500)));
    let next = waits(&from, 4, long());
    end(held);
    end(next.wait().unwrap());
}

#[test]
fn a_request_that_is_longer_than_the_bound_goes_alone() {
    let (from, to) = linked(NodeOptions { peer_bytes_max: 1, bytes_max: 1, ..bounds() });
    from.push_to(&to, 2, &[(0, 3), (1, 4), (2, 5)]);
    let held = begin(&from, 3, long());
    let next = waits(&from, 4, long());
    assert_eq!(next.busy(), Some(Full::PeerBytes));
    end(held);
    end(next.wait().unwrap());
}

#[test]
fn requests_of_a_peer_that_leaves_fail_by_its_name() {
    let (from, to) = linked(one());
    let _held = begin(&from, 2, long());
    let waiting: Vec<_> = (3..20).map(|request| waits(&from, request, long())).collect();
    drop(to);
    for begin in waiting {
        let error = begin.wait().unwrap_err();
        assert!(matches!(&error, NodeError::Left { peer } if peer.as_str() == "d"), "{error}");
    }
    assert_eq!((from.node.load().waiting, from.node.peer_load("d")), (0, None));
}

#[test]
fn a_request_that_finds_no_room_by_its_deadline_says_which_bound_is_full() {
    let (bytes, many) = (1, u64::MAX);
    for (peer, node, (peer_waiting_max, waiting_max), full, option) in [
        ((1, many), (9, many), (9, 9), Full::PeerTransfers, "peer_transfers_max"),
        ((9, bytes), (9, many), (9, 9), Full::PeerBytes, "peer_bytes_max"),
        ((9, many), (1, many), (9, 9), Full::Transfers, "::transfers_max"),
        ((9, many), (9, bytes), (9, 9), Full::Bytes, "::bytes_max"),
        ((1, many), (9, many), (9, 1), Full::Waiting, "::waiting_max"),
        ((1, many), (9, many), (1, 9), Full::PeerWaiting, "peer_waiting_max"),
    ] {
        let (from, _to) = linked(NodeOptions {
            peer_transfers_max: peer.0,
            peer_bytes_max: peer.1,
            transfers_max: node.0,
            bytes_max: node.1,
            waiting_max,
            peer_waiting_max,
            ..bounds()
        });
        let _held = begin(&from, 2, long());
        let is_at_once = matches!(full, Full::Waiting | Full::PeerWaiting);
        let _waits = is_at_once.then(|| waits(&from, 3, long()));
        let asked = Instant::now();
        let error =
            from.node.push("d", 4, &[0], Deadline::after(Duration::from_millis(200))).wait().unwrap_err();
        let waited = asked.elapsed();
        assert!(matches!(&error, NodeError::Busy { full: is, .. } if *is == full), "{full:?}: {error}");
        assert!(error.to_string().contains("node d") && error.to_string().contains(option), "{error}");
        assert_eq!(waited < Duration::from_millis(200), is_at_once, "{waited:?}");
        // A deadline that has passed asks, and does not wait.
        let over = from.node.push("d", 5, &[0], Deadline::after(Duration::ZERO)).try_now().unwrap();
        assert!(matches!(over, Err(NodeError::Busy { .. })), "{over:?}");
    }
}

/// An outcome that nobody has taken counts, because its slot is not free, either.
#[test]
fn an_outcome_that_nobody_takes_keeps_its_room() {
    let (from, to) = linked(one());
    let push = begin(&from, 2, long());
    let grant = to.node.grant("p", 2, &[4], long()).wait().unwrap();
    grant.wait().unwrap();
    until(|| push.progress().bytes_arrived == push.progress().bytes);
    let next = waits(&from, 3, long());
    thread::sleep(Duration::from_millis(50));
    let next = next.try_now().unwrap_err();
    push.wait().unwrap();
    end(next.wait().unwrap());
}

/// A node, and requests of it that wait for a peer whose listener never answers.
fn waiting_for_nobody(until: Deadline) -> (Member, Vec<Begin<Receiving>>, impl Sized) {
    let node = member(Wire::Local, "d", Role::Decode);
    let silent = TcpListener::bind(listen()).unwrap();
    let there = NodeOptions { addresses: vec![silent.local_addr().unwrap()], ..options("q") };
    let elsewhere = member_with(Wire::Local, &there, Role::Prefill);
    let connecting = node.node.connect(&elsewhere.node.export(), until);
    let asked = (0..10_u64).map(|request| node.node.grant("q", request, &[3], long()));
    let waiting: Vec<_> = asked.map(|begin| begin.try_now().unwrap_err()).collect();
    assert_eq!(node.node.load().waiting, 10);
    (node, waiting, (silent, elsewhere, connecting))
}

#[test]
fn requests_to_a_peer_that_is_never_met_wait_no_more() {
    let (node, waiting, _others) = waiting_for_nobody(Deadline::after(Duration::from_millis(300)));
    let patience = long();
    while node.node.load().waiting > 0 {
        assert!(!patience.expired(), "{:?}", node.node.load());
        thread::sleep(Duration::from_millis(5));
    }
    for begin in waiting {
        let error = begin.wait().unwrap_err();
        assert!(matches!(error, NodeError::Unreachable { .. } | NodeError::Late { .. }), "{error}");
    }
}

#[test]
fn requests_of_a_node_that_is_closed_wait_no_more() {
    let (node, waiting, _others) = waiting_for_nobody(long());
    node.node.clone().closed(long()).wait().unwrap();
    assert_eq!(node.node.load(), Load::default());
    for begin in waiting {
        let error = begin.wait().unwrap_err();
        assert!(matches!(error, NodeError::Closed), "{error}");
    }
}
