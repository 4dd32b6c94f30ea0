//! The nodes that become peers, and those that are refused, by name.

use std::time::Duration;

use rdma_collective::bootstrap::JobToken;
use rdma_collective::kv::layout::{Layout, Shape};
use rdma_collective::kv::{KvNode, NodeError, NodeOptions, Pool, PoolUse};
use rdma_collective::link::BlobError;
use rdma_core::{Deadline, Wire};

use crate::common::{assert_books, block_on, books, long};
use crate::job::{Member, Role, listen, member, member_with, options};
use crate::pair::{SHAPE, TOKEN, engine};

fn soon() -> Deadline {
    Deadline::after(Duration::from_millis(300))
}

fn names(node: &KvNode) -> Vec<String> {
    node.peers().iter().map(ToString::to_string).collect()
}

/// Waits until a node has these peers.
fn until_peers(node: &KvNode, expected: &[&str]) {
    let patience = long();
    while names(node) != expected {
        assert!(!patience.expired(), "{:?} in place of {expected:?}", names(node));
        std::thread::yield_now();
    }
}

/// Alone, because it reads the books of its process.
#[test]
#[ignore = "alone: processes::what_nodes_have_taken_goes_with_them starts it"]
fn one_of_two_connects_and_both_know_each_other_until_one_leaves() {
    // The first round fills what is kept for ever.
    come_and_go();
    std::thread::sleep(Duration::from_millis(500));
    let before = books();
    come_and_go();
    assert_books(&before, "after both have left");
}

fn come_and_go() {
    let (prefill, decode) = (member(Wire::Local, "p", Role::Prefill), member(Wire::Local, "d", Role::Decode));
    decode.meet(&prefill);
    until_peers(&decode.node, &["p"]);
    until_peers(&prefill.node, &["d"]);
    // Once more is no mistake.
    decode.meet(&prefill);
    prefill.meet(&decode);
    let left = prefill.node.left("d");
    drop(decode);
    block_on(left);
    until_peers(&prefill.node, &[]);
    block_on(prefill.node.left("d"));
    let unknown = prefill.node.push("d", 1, &[0], long()).wait().unwrap_err();
    assert!(matches!(unknown, NodeError::Unknown { .. }), "{unknown}");
}

#[test]
fn both_may_connect_at_once() {
    for round in 0..20 {
        let both = ["a", "b"].map(|name| member(Wire::Local, name, Role::Both));
        let [a, b] = &both;
        let (to_b, to_a) =
            (a.node.connect(&b.node.export(), long()), b.node.connect(&a.node.export(), long()));
        assert_eq!(block_on(to_b).unwrap().as_str(), "b", "round {round}");
        assert_eq!(block_on(to_a).unwrap().as_str(), "a", "round {round}");
        until_peers(&a.node, &["b"]);
        until_peers(&b.node, &["a"]);
        a.push_to(b, 1, &[(0, 3)]);
        b.push_to(a, 2, &[(1, 4), (2, 5)]);
    }
}

#[test]
fn a_peer_that_is_forgotten_forgets_and_may_come_again() {
    let (a, b) = (member(Wire::Local, "a", Role::Both), member(Wire::Local, "b", Role::Both));
    a.meet(&b);
    until_peers(&b.node, &["a"]);
    assert!(a.node.forget("b"));
    assert!(!a.node.forget("b"));
    until_peers(&b.node, &[]);
    b.meet(&a);
    b.push_to(&a, 1, &[(0, 3)]);
}

fn refused(node: &KvNode, blob: &[u8]) -> NodeError {
    node.connect(blob, soon()).wait().unwrap_err()
}

#[test]
fn blobs_that_are_none_altered_or_of_others_are_refused_by_name() {
    let (node, peer) = (member(Wire::Local, "d", Role::Decode), member(Wire::Local, "p", Role::Prefill));
    let blob = peer.node.export();
    for (bytes, expected) in [
        (&b"not a blob"[..], BlobError::NotABlob),
        (&blob[..blob.len() - 1], BlobError::Truncated { len: blob.len() - 1 }),
        (&[&blob[..], &[0]].concat()[..], BlobError::Malformed { field: "end" }),
    ] {
        let error = refused(&node.node, bytes);
        assert!(matches!(&error, NodeError::Blob(cause) if *cause == expected), "{error}");
    }
    for at in 0..blob.len() {
        let mut altered = blob.clone();
        altered[at] ^= 0x10;
        assert!(matches!(refused(&node.node, &altered), NodeError::Blob(_)), "byte {at}");
    }
    let engine = engine(Wire::Local, None);
    let pool = Pool::allocate(&engine, &Layout::new(SHAPE).unwrap(), PoolUse::Source).unwrap();
    let token = JobToken::random().unwrap();
    let other = KvNode::new(&engine, &[&pool], &token, &options("p")).unwrap();
    let error = refused(&node.node, &other.export());
    assert!(matches!(error, NodeError::Blob(BlobError::OtherJob)), "{error}");
    let own = refused(&node.node, &node.node.export());
    assert!(matches!(own, NodeError::OwnName { .. }), "{own}");
    assert_eq!(names(&node.node), [""; 0]);
}

#[test]
fn a_blob_expires() {
    let lasts = NodeOptions { blob_lasts: Some(Duration::from_secs(1)), ..options("p") };
    let (node, peer) =
        (member(Wire::Local, "d", Role::Decode), member_with(Wire::Local, &lasts, Role::Prefill));
    let blob = peer.node.export();
    std::thread::sleep(Duration::from_millis(2100));
    let error = refused(&node.node, &blob);
    assert!(matches!(error, NodeError::Expired { .. }), "{error}");
    node.meet(&peer);
}

#[test]
fn the_blob_of_a_node_that_is_gone_finds_nobody_even_where_another_listens() {
    let (node, peer) = (member(Wire::Local, "d", Role::Decode), member(Wire::Local, "p", Role::Prefill));
    node.meet(&peer);
    let address = NodeOptions::new("p", listen());
    let blob = peer.node.export();
    let left = node.node.left("p");
    drop(peer);
    block_on(left);
    let error = refused(&node.node, &blob);
    assert!(matches!(error, NodeError::Unreachable { .. } | NodeError::Late { .. }), "{error}");
    // Another process of the job listens at the address of the first.
    let first = member_with(Wire::Local, &address, Role::Prefill);
    let (blob, listen) = (first.node.export(), first.node.addresses()[0]);
    drop(first);
    let patience = long();
    let next = loop {
        let engine = engine(Wire::Local, None);
        let pool = Pool::allocate(&engine, &Layout::new(SHAPE).unwrap(), PoolUse::Source).unwrap();
        match KvNode::new(&engine, &[&pool], &TOKEN, &NodeOptions::new("p", listen)) {
            Ok(next) => break next,
            Err(error) => {
                assert!(matches!(error, NodeError::Listen { .. }) && !patience.expired(), "{error}")
            }
        }
    };
    let error = refused(&node.node, &blob);
    assert!(matches!(error, NodeError::Gone { .. }), "{error}");
    assert_eq!(node.node.connect(&next.export(), long()).wait().unwrap().as_str(), "p");
}

#[test]
fn the_name_of_a_living_peer_is_refused_and_that_of_one_that_left_is_free() {
    let node = member(Wire::Local, "d", Role::Decode);
    let [first, second] = ["p", "p"].map(|name| member(Wire::Local, name, Role::Prefill));
    node.meet(&first);
    let error = refused(&node.node, &second.node.export());
    assert!(matches!(error, NodeError::NameTaken { .. }), "{error}");
    let error = refused(&second.node, &node.node.export());
    assert!(matches!(error, NodeError::NameTaken { .. }), "{error}");
    first.push_to(&node, 1, &[(0, 3)]);
    let left = node.node.left("p");
    drop(first);
    block_on(left);
    second.meet(&node);
    second.push_to(&node, 2, &[(0, 3)]);
}

#[test]
fn there_are_as_many_peers_as_a_node_may_have() {
    let few = NodeOptions { peers_max: 2, ..options("d") };
    let node = member_with(Wire::Local, &few, Role::Decode);
    let peers = ["p0", "p1", "p2"].map(|name| member(Wire::Local, name, Role::Prefill));
    peers[..2].iter().for_each(|peer: &Member| peer.meet(&node));
    for error in [refused(&peers[2].node, &node.node.export()), refused(&node.node, &peers[2].node.export())]
    {
        assert!(matches!(error, NodeError::Full { .. }), "{error}");
    }
    assert!(node.node.forget("p0"));
    peers[2].meet(&node);
}

#[test]
fn pools_that_do_not_go_together_are_refused_by_both() {
    let node = member(Wire::Local, "d", Role::Decode);
    let engine = engine(Wire::Local, None);
    let shape = Shape { layers: 4, ..SHAPE };
    let pool = Pool::allocate(&engine, &Layout::new(shape).unwrap(), PoolUse::Source).unwrap();
    let other = KvNode::new(&engine, &[&pool], &TOKEN, &options("p")).unwrap();
    for error in [refused(&node.node, &other.export()), refused(&other, &node.node.export())] {
        assert!(matches!(error, NodeError::Layout { .. }) && error.to_string().contains("layers"), "{error}");
    }
    let second = member(Wire::Local, "e", Role::Decode);
    let error = refused(&node.node, &second.node.export());
    assert!(matches!(error, NodeError::NothingToMove { .. }), "{error}");
    for pools in [&[][..], &[&pool, &pool]] {
        let error = KvNode::new(&engine, pools, &TOKEN, &options("p")).unwrap_err();
        assert!(matches!(error, NodeError::NoPool), "{error}");
    }
    for name in ["", "a b", "é", &"x".repeat(65)] {
        let error = KvNode::new(&engine, &[&pool], &TOKEN, &options(name)).unwrap_err();
        assert!(matches!(error, NodeError::Name { .. }), "{error}");
    }
}

#[test]
fn connecting_is_late_where_nobody_answers() {
    let (node, peer) = (member(Wire::Local, "d", Role::Decode), member(Wire::Local, "p", Role::Prefill));
    let silent = std::net::TcpListener::bind(listen()).unwrap();
    let there = NodeOptions { addresses: vec![silent.local_addr().unwrap()], ..options("q") };
    let elsewhere = member_with(Wire::Local, &there, Role::Prefill);
    let connecting = node.node.connect(&elsewhere.node.export(), soon());
    let waiting = node.node.grant("q", 1, &[3], soon());
    let (connecting, waiting) = (connecting.wait().unwrap_err(), waiting.wait().unwrap_err());
    for error in [connecting, waiting] {
        let expected = matches!(
            error,
            NodeError::Late { .. } | NodeError::Unreachable { .. } | NodeError::Unknown { .. }
        );
        assert!(expected, "{error}");
    }
    node.meet(&peer);
    peer.push_to(&node, 2, &[(0, 3)]);
}
