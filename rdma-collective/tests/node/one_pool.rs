//! Nodes whose one pool is both: blocks come to it, and leave it again.

use rdma_collective::engine::Engine;
use rdma_collective::kv::{Grant, HoldKind, KvError, KvNode, NodeError, Pool, PoolUse, Push};
use rdma_core::Wire;

use crate::common::{WIRES, long};
use crate::job::options;
use crate::pair::{CANARY, SHAPE, TOKEN, assert_freed, assert_moved, engine, pool, source_byte};

struct Member {
    node: KvNode,
    pool: Pool,
}

fn member(engine: &Engine, name: &str, purpose: PoolUse, filled: bool) -> Member {
    let content = |layer, block, at| if filled { source_byte(layer, block, at) } else { CANARY };
    let pool = pool(engine, SHAPE, purpose, content);
    Member { node: KvNode::new(engine, &[&pool], &TOKEN, &options(name)).unwrap(), pool }
}

/// Moves one block from a node to another.
fn push(from: &Member, to: &Member, request: u64, (source, destination): (u32, u32)) {
    let grant: Grant =
        to.node.grant(from.node.name().as_str(), request, &[destination], long()).wait().unwrap();
    let push: Push = from.node.push(to.node.name().as_str(), request, &[source], long()).wait().unwrap();
    assert!(grant.wait().unwrap().verdicts.all_valid());
    push.wait().unwrap();
}

#[test]
fn blocks_that_came_to_a_pool_go_on_from_it_on_every_wire() {
    for wire in WIRES {
        let made = |name, purpose, filled| member(&engine(wire, None), name, purpose, filled);
        let (a, b) = (made("a", PoolUse::Source, true), made("b", PoolUse::BothToPull, false));
        let c = made("c", PoolUse::Both, false);
        a.node.connect(&b.node.export(), long()).wait().unwrap();
        b.node.connect(&c.node.export(), long()).wait().unwrap();
        push(&a, &b, 1, (6, 3));
        push(&b, &c, 1, (3, 5));
        push(&c, &b, 1, (5, 4));
        let offer = b.node.offer("c", 2, &[4], long()).wait().unwrap();
        assert!(c.node.pull("b", 2, &[7], long()).wait().unwrap().wait().unwrap().verdicts.all_valid());
        offer.wait().unwrap();
        assert_moved(&b.pool, &[(6, 3), (6, 4)]);
        assert_moved(&c.pool, &[(6, 5), (6, 7)]);
    }
}

#[test]
fn a_block_of_such_a_pool_is_leased_or_granted_and_never_both() {
    let (a, b) = (
        member(&engine(Wire::Local, None), "a", PoolUse::Both, true),
        member(&engine(Wire::Local, None), "b", PoolUse::Both, false),
    );
    a.node.connect(&b.node.export(), long()).wait().unwrap();
    let push = a.node.push("b", 1, &[3], long()).wait().unwrap();
    let granted = a.node.grant("b", 1, &[3], long()).wait().unwrap_err();
    let by = |error: &NodeError| match error {
        NodeError::Transfer { source: KvError::Held { block: 3, by }, .. } => Some(*by),
        _ => None,
    };
    assert_eq!(by(&granted), Some(HoldKind::Leased), "{granted}");
    push.revoke(long()).unwrap();
    let grant = a.node.grant("b", 2, &[3], long()).wait().unwrap();
    let leased = a.node.push("b", 2, &[3], long()).wait().unwrap_err();
    assert_eq!(by(&leased), Some(HoldKind::Granted), "{leased}");
    grant.revoke(long()).unwrap();
    assert_freed(&a.pool, &[3]);
    let unread = a.node.offer("b", 3, &[3], long()).wait().unwrap_err();
    assert!(matches!(unread, NodeError::Transfer { source: KvError::NotReadable, .. }), "{unread}");
}

#[test]
fn a_node_takes_one_pool_for_each_direction() {
    let engine = engine(Wire::Local, None);
    let made = |purpose| pool(&engine, SHAPE, purpose, source_byte);
    let (source, both, room) = (made(PoolUse::Source), made(PoolUse::Both), made(PoolUse::Destination));
    for pools in [&[&source, &both][..], &[&both, &room], &[&both, &both], &[]] {
        let refused = KvNode::new(&engine, pools, &TOKEN, &options("a")).unwrap_err();
        assert!(matches!(refused, NodeError::NoPool), "{refused}");
    }
}
