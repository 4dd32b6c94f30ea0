//! Transfers of nodes: links are made when they are needed, in either direction, and again when they have ended.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use rdma_collective::kv::{Blocks, KvError, KvNode, NodeError};
use rdma_core::{Deadline, Wire};

use crate::common::{WIRES, assert_books, block_on, books, long};
use crate::job::{Role, member, member_with, options};
use crate::pair::{assert_freed, assert_moved};

#[test]
fn blocks_move_on_every_wire_in_both_directions_and_both_ways() {
    for wire in WIRES {
        let (a, b) = (member(wire, "a", Role::Both), member(wire, "b", Role::Both));
        a.meet(&b);
        a.push_to(&b, 1, &[(0, 3), (1, 4)]);
        b.push_to(&a, 1, &[(7, 2)]);
        let offer = b.node.offer("a", 2, &[5, 6], long()).wait().unwrap();
        let pull = block_on(a.node.pull_layers("b", 2, &[8, 9], long())).unwrap();
        let received = block_on(pull).unwrap();
        assert!(received.verdicts.all_valid());
        offer.wait().unwrap();
        assert_moved(a.destination.as_ref().unwrap(), &[(7, 2), (5, 8), (6, 9)]);
        let nothing = block_on(a.node.grant_missing("b", 3, &received.verdicts, long())).unwrap();
        assert_eq!(nothing.progress().bytes, 0);
    }
}

#[test]
fn blocks_that_a_node_has_do_not_move() {
    let (a, b) = (member(Wire::Local, "a", Role::Both), member(Wire::Local, "b", Role::Both));
    a.meet(&b);
    let grant = b.node.grant("a", 1, Blocks::new(&[3, 4]).having(&[3]), long()).wait().unwrap();
    let push = a.node.push("b", 1, &[0, 1], long()).wait().unwrap();
    assert_eq!(push.wait_skipped(long()).unwrap(), [0]);
    assert!(grant.wait().unwrap().verdicts.all_valid());
    push.wait().unwrap();
    let offer = a.node.offer("b", 2, &[5, 6], long()).wait().unwrap();
    let pull = b.node.pull("a", 2, Blocks::new(&[7, 8]).having(&[8]), long()).wait().unwrap();
    assert!(pull.wait().unwrap().verdicts.all_valid());
    offer.wait().unwrap();
    assert_moved(b.destination.as_ref().unwrap(), &[(1, 4), (5, 7)]);
}

#[test]
fn both_may_need_the_link_at_once() {
    for round in 0..20 {
        let (a, b) = (member(Wire::Local, "a", Role::Both), member(Wire::Local, "b", Role::Both));
        a.meet(&b);
        let begun = [
            (b.node.grant("a", 1, &[3], long()), a.node.push("b", 1, &[0], long())),
            (a.node.grant("b", 2, &[4], long()), b.node.push("a", 2, &[1], long())),
        ];
        thread::scope(|scope| {
            for (grant, push) in begun {
                scope.spawn(move || push.wait().unwrap().wait().unwrap());
                scope.spawn(move || assert!(grant.wait().unwrap().wait().unwrap().verdicts.all_valid()));
            }
        });
        assert_moved(b.destination.as_ref().unwrap(), &[(0, 3)]);
        assert_moved(a.destination.as_ref().unwrap(), &[(1, 4)]);
        println!("round {round}");
    }
}

/// Alone, because it reads the books of its process.
#[test]
#[ignore = "alone: processes::what_nodes_have_taken_goes_with_them starts it"]
fn a_begin_that_is_dropped_at_any_poll_begins_nothing() {
    // The first round fills what is kept for ever.
    drop_at_any_poll();
    thread::sleep(Duration::from_millis(500));
    let before = books();
    drop_at_any_poll();
    assert_books(&before, "after both have gone");
}

fn drop_at_any_poll() {
    let (a, b) = (member(Wire::Local, "a", Role::Prefill), member(Wire::Local, "b", Role::Decode));
    let connecting = b.node.connect(&a.node.export(), long());
    for polls in 0..40 {
        let mut grant = pin!(b.node.grant("a", 100 + polls, &[3], long()));
        for _ in 0..polls % 4 {
            _ = grant.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        thread::sleep(Duration::from_micros(200 * polls));
    }
    connecting.wait().unwrap();
    let room = b.destination.as_ref().unwrap();
    assert_freed(room, &[3]);
    a.push_to(&b, 1, &[(0, 3)]);
}

#[test]
fn a_transfer_that_cannot_be_says_why_and_names_the_node() {
    let (a, b) = (member(Wire::Local, "a", Role::Prefill), member(Wire::Local, "b", Role::Decode));
    a.meet(&b);
    let wrong_way = b.node.push("a", 1, &[0], long()).wait().unwrap_err();
    assert!(matches!(wrong_way, NodeError::NothingToMove { .. }), "{wrong_way}");
    let repeated = b.node.grant("a", 1, &[3, 3], long()).wait().unwrap_err();
    assert!(matches!(repeated, NodeError::Transfer { source: KvError::Plan(_), .. }), "{repeated}");
    assert!(repeated.to_string().starts_with("node a: "), "{repeated}");
    let stranger = b.node.grant("nobody", 1, &[3], long()).wait().unwrap_err();
    assert!(matches!(stranger, NodeError::Unknown { .. }), "{stranger}");
    let now = b.node.grant("a", 2, &[3], long()).try_now();
    assert!(now.is_ok(), "the link is up");
}

/// The node's own options keep alive what it begins, for as long as the peer is there.
#[test]
fn a_node_keeps_its_transfers_alive() {
    let mut options = options("b");
    options.link.keep_alive = Some(Duration::from_secs(60));
    let (a, b) = (member(Wire::Local, "a", Role::Prefill), member_with(Wire::Local, &options, Role::Decode));
    a.meet(&b);
    let short = || Deadline::after(Duration::from_secs(2));
    let grants =
        [(1, [3]), (2, [4])].map(|(id, block)| b.node.grant("a", id, &block, short()).wait().unwrap());
    thread::sleep(Duration::from_secs(5));
    let [met, lost] = grants;
    a.node.push("b", 1, &[0], long()).wait().unwrap().wait().unwrap();
    assert!(met.wait().unwrap().verdicts.all_valid());
    drop(a);
    let error = lost.wait().unwrap_err();
    assert!(matches!(*error.cause, KvError::PeerFailed { .. }), "{error}");
    assert!(error.to_string().contains("node a (127.0.0.1:"), "{error}");
    assert_freed(b.destination.as_ref().unwrap(), &[4]);
}

/// Moves a block again until that works: a node may not have noticed yet that the link is over.
fn until_moved(a: &KvNode, b: &KvNode, first: u64) {
    for request in first.. {
        let soon = || Deadline::after(Duration::from_secs(1));
        let pushed = a.push("b", request, &[1], soon()).wait().unwrap();
        let grant = b.grant("a", request, &[4], soon()).wait().unwrap();
        match (pushed.wait(), grant.wait()) {
            (Ok(_), Ok(_)) => return,
            (pushed, granted) => println!("{pushed:?}, {granted:?}"),
        }
        assert!(request < first + 20, "it never moves");
    }
}

/// A link whose lane was fenced, because the peer did not stop in time, is made anew for the next transfer, whichever
/// node makes the links of the two.
#[test]
fn a_link_that_has_ended_is_made_anew() {
    for (wire, a_connects) in WIRES.into_iter().flat_map(|wire| [(wire, true), (wire, false)]) {
        let (a, b) = (member(wire, "a", Role::Prefill), member(wire, "b", Role::Decode));
        if a_connects {
            a.meet(&b);
        } else {
            b.meet(&a);
        }
        for round in 1..5 {
            let push = a.node.push_layers("b", round, &[0], long()).wait().unwrap();
            let grant = b.node.grant("a", round, &[3], long()).wait().unwrap();
            while push.progress().writes == 0 {
                thread::yield_now();
            }
            grant.revoke(Deadline::after(Duration::ZERO)).unwrap();
            push.wait().unwrap_err();
            until_moved(&a.node, &b.node, 100 * round);
            assert_moved(b.destination.as_ref().unwrap(), &[(1, 4)]);
        }
    }
}

#[test]
fn transfers_of_a_peer_that_leaves_end_soon() {
    let (a, b) = (member(Wire::Local, "a", Role::Prefill), member(Wire::Local, "b", Role::Decode));
    a.meet(&b);
    a.push_to(&b, 1, &[(0, 3)]);
    let grant = b.node.grant("a", 2, &[4], long()).wait().unwrap();
    drop(a);
    let error = grant.wait_until(Deadline::after(Duration::from_secs(20))).unwrap().unwrap_err();
    assert!(matches!(*error.cause, KvError::PeerFailed { .. } | KvError::LinkEnded { .. }), "{error}");
    assert_freed(b.destination.as_ref().unwrap(), &[4]);
}
