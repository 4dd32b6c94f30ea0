//! Nodes of one job, with pools whose every byte is known.

use std::net::SocketAddr;

use rdma_collective::engine::Engine;
use rdma_collective::kv::{KvNode, NodeOptions, Pool, PoolUse};
use rdma_core::Wire;

use crate::common::long;
use crate::pair::{CANARY, SHAPE, TOKEN, assert_moved, engine, pool, source_byte};

/// A node and its pools.
pub struct Member {
    pub node: KvNode,
    pub source: Option<Pool>,
    pub destination: Option<Pool>,
}

/// The use of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Prefill,
    Decode,
    Both,
}

pub fn listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

pub fn options(name: &str) -> NodeOptions {
    NodeOptions::new(name, listen())
}

/// A node of the job with default options.
pub fn member(wire: Wire, name: &str, role: Role) -> Member {
    member_with(wire, &options(name), role)
}

pub fn member_with(wire: Wire, options: &NodeOptions, role: Role) -> Member {
    member_on(&engine(wire, None), options, role)
}

pub fn member_on(engine: &Engine, options: &NodeOptions, role: Role) -> Member {
    let source = (role != Role::Decode).then(|| pool(engine, SHAPE, PoolUse::SourceToPull, source_byte));
    let destination =
        (role != Role::Prefill).then(|| pool(engine, SHAPE, PoolUse::Destination, |_, _, _| CANARY));
    let pools: Vec<&Pool> = source.iter().chain(&destination).collect();
    let node = KvNode::new(engine, &pools, &TOKEN, options).unwrap();
    Member { node, source, destination }
}

impl Member {
    /// Connects to another node.
    pub fn meet(&self, other: &Self) {
        assert_eq!(self.node.connect(&other.node.export(), long()).wait().unwrap(), other.node.name());
    }

    /// Pushes blocks to another node, and checks them there.
    pub fn push_to(&self, other: &Self, request: u64, pairs: &[(u32, u32)]) {
        let (sources, destinations): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
        let own = self.node.name();
        let grant = other.node.grant(own.as_str(), request, &destinations, long());
        let push = self.node.push(other.node.name().as_str(), request, &sources, long());
        std::thread::scope(|scope| {
            let pushed = scope.spawn(|| push.wait().unwrap().wait().unwrap());
            let received = grant.wait().unwrap().wait().unwrap();
            assert!(received.verdicts.all_valid());
            pushed.join().unwrap();
        });
        assert_moved(other.destination.as_ref().unwrap(), pairs);
    }
}
