//! Calls on nodes.

use std::borrow::Borrow;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use rdma_collective::kv::{KvNode, NodeName, NodeOptions};

use super::operations::awaited;
use super::{Call, Outcome, done, harmless, refused, told};
use crate::fixture::soon;
use crate::pair::TOKEN;

pub const CALLS: &[Call] = &[
    harmless("kv::Begin::busy", |f| done(f.node.push("d", 7, &[0], soon()).busy())),
    refused("kv::Begin::poll", |f| awaited(f.node.push("d", 7, &[0], soon()))),
    refused("kv::Begin::try_now", |f| {
        f.node.push("d", 7, &[0], soon()).try_now().map_or(Outcome::Done, told)
    }),
    refused("kv::Begin::wait", |f| told(f.node.push("d", 7, &[0], soon()).wait())),
    harmless("kv::Begin::drop", |f| done(f.node.push("d", 7, &[0], soon()))),
    refused("kv::Closing::poll", |f| awaited(f.node.closed(soon()))),
    refused("kv::Closing::wait", |f| told(f.node.closed(soon()).wait())),
    refused("kv::Connecting::poll", |f| awaited(f.node.connect(&f.other_node.export(), soon()))),
    refused("kv::Connecting::wait", |f| told(f.node.connect(&f.other_node.export(), soon()).wait())),
    harmless("kv::KvNode::addresses", |f| done(f.node.addresses())),
    refused("kv::KvNode::closed", |f| told(f.node.closed(soon()).wait())),
    refused("kv::KvNode::connect", |f| told(f.node.connect(&f.other_node.export(), soon()).wait())),
    harmless("kv::KvNode::export", |f| done(f.node.export())),
    harmless("kv::KvNode::forget", |f| done(f.node.forget("d"))),
    refused("kv::KvNode::grant", |f| awaited(f.other_node.grant("p", 8, &[0], soon()))),
    refused("kv::KvNode::grant_missing", |f| {
        awaited(f.other_node.grant_missing("p", 8, &f.verdicts, soon()))
    }),
    harmless("kv::KvNode::left", |f| done(f.node.left("d"))),
    harmless("kv::KvNode::load", |f| done(f.node.load())),
    harmless("kv::KvNode::name", |f| done(f.node.name())),
    refused("kv::KvNode::new", |f| {
        let options = NodeOptions::new("n", "127.0.0.1:0".parse().unwrap());
        told(KvNode::new(&f.engine, &[&f.source], &TOKEN, &options))
    }),
    refused("kv::KvNode::offer", |f| awaited(f.node.offer("d", 8, &[0], soon()))),
    harmless("kv::KvNode::peer_load", |f| done(f.node.peer_load("d"))),
    harmless("kv::KvNode::peers", |f| {
        let peers = f.node.peers();
        // The child drops the nodes, and ends nothing of the parent's.
        drop((f.node, f.other_node));
        done(peers)
    }),
    refused("kv::KvNode::pull", |f| awaited(f.other_node.pull("p", 8, &[0], soon()))),
    refused("kv::KvNode::pull_layers", |f| awaited(f.other_node.pull_layers("p", 8, &[0], soon()))),
    refused("kv::KvNode::pull_missing", |f| awaited(f.other_node.pull_missing("p", 8, &f.verdicts, soon()))),
    refused("kv::KvNode::push", |f| awaited(f.node.push("d", 8, &[0], soon()))),
    refused("kv::KvNode::push_layers", |f| awaited(f.node.push_layers("d", 8, &[0], soon()))),
    harmless("kv::Leaving::poll", |f| {
        let mut context = Context::from_waker(Waker::noop());
        done(pin!(f.node.left("d")).poll(&mut context))
    }),
    harmless("kv::NodeName::as_str", |_| done(NodeName::new("n").unwrap().as_str().len())),
    harmless("kv::NodeName::borrow", |_| {
        let name = NodeName::new("n").unwrap();
        done(Borrow::<str>::borrow(&name).len())
    }),
    harmless("kv::NodeName::new", |_| done(NodeName::new("n").is_ok())),
    harmless("kv::NodeOptions::new", |_| done(NodeOptions::new("n", "127.0.0.1:0".parse().unwrap()))),
];
